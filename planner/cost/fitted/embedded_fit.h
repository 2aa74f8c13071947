// SPDX-License-Identifier: Apache-2.0
// Implemented by a file that planner/cost/fitted/embed_fit.cmake writes at build time from
// planner/cost/fitted/h200.txt.
#pragma once

#include <string_view>

namespace cleave::planner {

std::string_view embedded_fit();

}  // namespace cleave::planner
