# SPDX-License-Identifier: Apache-2.0
# Script: writes OUTPUT, a .cpp that holds INPUT as a raw string.
file(READ ${INPUT} page)
file(WRITE ${OUTPUT} "// Written by tools/inspect/embed_page.cmake from page.html.\n#include \"tools/inspect/page.h\"\n
namespace cleave::tools {\n\nstd::string_view page_template() { return R\"__page__(${page})__page__\"; }\n
}  // namespace cleave::tools\n")
