// SPDX-License-Identifier: Apache-2.0
// The steps of one phase as text: the same kernel on several devices is one line, equal layers
// stand once.
#pragma once

#include <string>

#include "planner/plan/plan.h"

namespace cleave::planner {

// `all`: each step on a line of its own, with its number.
std::string steps_text(const Plan& plan, bool is_prefill, bool all, int width);

}  // namespace cleave::planner
