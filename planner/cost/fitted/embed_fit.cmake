# SPDX-License-Identifier: Apache-2.0
# Script: writes OUTPUT, a .cpp that holds the text of INPUT, in pieces that every compiler takes as
# literals.
file(READ ${INPUT} body)
set(text "// Written by planner/cost/fitted/embed_fit.cmake from planner/cost/fitted/h200.txt.\n")
string(APPEND text "#include \"planner/cost/fitted/embedded_fit.h\"\n\nnamespace cleave::planner {\n\n")
string(APPEND text "std::string_view embedded_fit() {\n    return")
string(LENGTH "${body}" length)
set(at 0)
while(at LESS length)
    string(SUBSTRING "${body}" ${at} 60000 piece)
    string(APPEND text " R\"__fit__(${piece})__fit__\"")
    math(EXPR at "${at} + 60000")
endwhile()
string(APPEND text ";\n}\n\n}  // namespace cleave::planner\n")
file(WRITE ${OUTPUT} "${text}")
