# SPDX-License-Identifier: Apache-2.0
# Script: writes OUTPUT, a .cpp that holds the text of INPUT.
file(READ ${INPUT} body)
file(WRITE ${OUTPUT} "// Written by planner/export_model/ort/embed_runner.cmake from run.py.
#include \"planner/export_model/ort/ort.h\"

namespace cleave::planner {

std::string_view ort_runner() { return R\"__python__(${body})__python__\"; }

}  // namespace cleave::planner
")
