# SPDX-License-Identifier: Apache-2.0
# Script: writes OUTPUT, a .cpp that holds the texts of h200.txt and sums.txt in FOLDER, in pieces
# that every compiler takes as literals.
set(text "// Written by planner/cost/fitted/embed_fit.cmake from planner/cost/fitted.\n")
string(APPEND text "#include \"planner/cost/fitted/embedded_fit.h\"\n\nnamespace cleave::planner {\n\n")
foreach(name h200 sums)
    file(READ ${FOLDER}/${name}.txt body)
    string(APPEND text "std::string_view embedded_${name}() {\n    return")
    string(LENGTH "${body}" length)
    set(at 0)
    while(at LESS length)
        string(SUBSTRING "${body}" ${at} 60000 piece)
        string(APPEND text " R\"__fit__(${piece})__fit__\"")
        math(EXPR at "${at} + 60000")
    endwhile()
    string(APPEND text ";\n}\n\n")
endforeach()
string(APPEND text "}  // namespace cleave::planner\n")
file(WRITE ${OUTPUT} "${text}")
