// SPDX-License-Identifier: Apache-2.0
// The error of a model whose logits are not numbers. In: the plan and the place of the logits. The
// error names devices, types, which of these cannot hold large values, and which can.
#pragma once

#include <span>
#include <string>

#include "planner/plan/plan.h"

namespace cleave::runtime {

// The error's text. `where`: "position 23 of the prompt".
std::string not_numbers(const planner::Plan& plan, const std::string& where);

// UserError with it.
[[noreturn]] void throw_not_numbers(const planner::Plan& plan, const std::string& where);

// That error where one of the logits is NaN.
void check_numbers(const planner::Plan& plan, std::span<const float> logits,
                   const std::string& where);

}  // namespace cleave::runtime
