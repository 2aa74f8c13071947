# SPDX-License-Identifier: Apache-2.0
# cmake -DROOT=FOLDER -DOUTPUT=FILE -P write_commit.cmake: a source with the commit of a checkout,
# and "+" where a file of it differs; "unknown" outside of one. Written anew only where it changes.
find_program(git git)
set(commit unknown)
if(git AND EXISTS ${ROOT}/.git)
    execute_process(COMMAND ${git} -C ${ROOT} rev-parse --short=12 HEAD OUTPUT_VARIABLE commit
                    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    execute_process(COMMAND ${git} -C ${ROOT} status --porcelain --untracked-files=no OUTPUT_VARIABLE changes
                    ERROR_QUIET)
    if(NOT changes STREQUAL "")
        string(APPEND commit "+")
    endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#include \"tools/commit.h\"\n\nconst char* cleave::tools::commit() { return \"${commit}\"; }\n")
