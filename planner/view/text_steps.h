// SPDX-License-Identifier: Apache-2.0
// The steps of one phase as text: the same kernel on several devices is one line, equal layers
// stand once.
#pragma once

#include <string>

#include "planner/plan/plan.h"

namespace cleave::planner {

// `all`: each step on a line of its own, with its number. Else of kinds of stages that differ in
// more than devices and layers at most `kinds`: the first ones and the last.
constexpr size_t kMostKinds = 8;
std::string steps_text(const Plan& plan, bool is_prefill, bool all, int width,
                       size_t kinds = kMostKinds);

}  // namespace cleave::planner
