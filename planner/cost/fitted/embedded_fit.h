// SPDX-License-Identifier: Apache-2.0
// Implemented by a file that planner/cost/fitted/embed_fit.cmake writes at build time from h200.txt
// and sums.txt beside this one.
#pragma once

#include <string_view>

namespace cleave::planner {

std::string_view embedded_h200();
std::string_view embedded_sums();

}  // namespace cleave::planner
