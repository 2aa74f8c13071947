// SPDX-License-Identifier: Apache-2.0
// The Python programs that exports bring with them, embedded at build time by embed_runners.cmake.
#pragma once

#include <string_view>

namespace cleave::planner {

std::string_view ort_runner();       // ort/run.py
std::string_view ort_rank_runner();  // ort/run_rank.py
std::string_view iree_runner();      // iree/run.py

}  // namespace cleave::planner
