# SPDX-License-Identifier: Apache-2.0
# Script: writes OUTPUT, a .cpp that holds every file of FILES (commas between, relative to ROOT) as
# a raw string.
string(REPLACE "," ";" FILES "${FILES}")
set(text "// Written by codegen/text/embed_templates.cmake from codegen/templates.\n")
string(APPEND text "#include \"codegen/text/embedded_templates.h\"\n\nnamespace cleave::codegen {\n\n")
string(APPEND text "std::span<const EmbeddedFile> embedded_templates() {\n    static const EmbeddedFile kFiles[] = {\n")
foreach(file IN LISTS FILES)
    file(READ ${ROOT}/${file} body)
    string(APPEND text "        {\"${file}\", R\"__template__(${body})__template__\"},\n")
endforeach()
string(APPEND text "    };\n    return kFiles;\n}\n\n}  // namespace cleave::codegen\n")
file(WRITE ${OUTPUT} "${text}")
