# SPDX-License-Identifier: Apache-2.0
# Script: puts the page of FOLDER together and writes OUTPUT, a .cpp that holds it as raw strings.
# A line @NAME@ of page.html becomes that file, and each file a literal: compilers need not take
# long ones.
file(STRINGS ${FOLDER}/page.html names REGEX "^@[a-z_]+[.](css|js)@$")
file(READ ${FOLDER}/page.html rest)
set(pieces "")
foreach(name IN LISTS names)
    string(FIND "${rest}" "${name}" at)
    string(LENGTH "${name}" length)
    string(SUBSTRING "${rest}" 0 ${at} before)
    math(EXPR behind "${at} + ${length}")
    string(SUBSTRING "${rest}" ${behind} -1 rest)
    string(REPLACE "@" "" file "${name}")
    file(READ ${FOLDER}/${file} text)
    # The licence is said once, in page.html.
    string(REGEX REPLACE "^(//|/[*]) SPDX[^\n]*\n" "" text "${text}")
    string(APPEND pieces "    R\"__page__(${before})__page__\"\n    R\"__page__(${text})__page__\"\n")
endforeach()
string(APPEND pieces "    R\"__page__(${rest})__page__\"")
file(WRITE ${OUTPUT} "// Written by tools/inspect/embed_page.cmake from the files of tools/inspect/page.\n#include \"tools/inspect/page.h\"\n
namespace cleave::tools {\n\nstd::string_view page_template() {\n    return\n${pieces};\n}\n
}  // namespace cleave::tools\n")
