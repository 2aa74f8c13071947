# SPDX-License-Identifier: Apache-2.0
# Script: writes OUTPUT, a .cpp that holds the texts of ORT, RANK and IREE.
file(READ ${ORT} ort)
file(READ ${RANK} rank)
file(READ ${IREE} iree)
file(WRITE ${OUTPUT} "// Written by planner/export/model/embed_runners.cmake from ort/run.py, ort/run_rank.py and iree/run.py.
#include \"planner/export/model/runners.h\"

namespace cleave::planner {

std::string_view ort_runner() { return R\"__python__(${ort})__python__\"; }
std::string_view ort_rank_runner() { return R\"__python__(${rank})__python__\"; }
std::string_view iree_runner() { return R\"__python__(${iree})__python__\"; }

}  // namespace cleave::planner
")
