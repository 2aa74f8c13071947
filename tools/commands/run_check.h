// SPDX-License-Identifier: Apache-2.0
// `cleave run --check`: the logits of a run beside those of one host device, which computes in the
// run's own types, or (--check=f32) with all weights and the KV cache in f32.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/generate/generate.h"
#include "tools/cli/logit_check.h"
#include "tools/commands/run_work.h"

namespace cleave::tools {

// UserError where the plan is the reference: there is nothing to compare.
void demand_reference(const RunArguments& flags, const planner::Plan& plan);

// Computes the same texts on one host device and compares logits.
LogitDifference host_difference(const RunArguments& flags, const planner::Plan& plan,
                                const std::vector<std::vector<int32_t>>& prompts,
                                const runtime::GenerateOptions& options,
                                const runtime::GenerateResult& result);

// UserError where the logits cannot be compared.
void demand_numbers(const LogitDifference& difference);

// "check against host: ...", with a sentence on what narrow types cost where that was asked.
std::string check_text(const RunArguments& flags, const planner::Plan& plan,
                       const LogitDifference& difference);
void add_check(const RunArguments& flags, const LogitDifference& difference,
               nlohmann::ordered_json& json);

}  // namespace cleave::tools
