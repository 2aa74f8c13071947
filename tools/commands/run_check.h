// SPDX-License-Identifier: Apache-2.0
// `cleave run --check`: the logits of a run beside those of one host device.
#pragma once

#include <vector>

#include "runtime/generate/generate.h"
#include "tools/cli/logit_check.h"
#include "tools/commands/run_work.h"

namespace cleave::tools {

// Runs the same prompts on one host device and compares logits.
LogitDifference host_difference(const RunArguments& flags, const planner::Plan& plan,
                                const std::vector<std::vector<int32_t>>& prompts,
                                const runtime::GenerateOptions& options,
                                const runtime::GenerateResult& result);

// UserError where the logits cannot be compared.
void demand_numbers(const LogitDifference& difference);

}  // namespace cleave::tools
