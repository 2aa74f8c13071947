// SPDX-License-Identifier: Apache-2.0
// What the plan's costs say of a run that was made: of its own prompts and texts, not of the
// lengths that the plan was quoted for.
#pragma once

#include <vector>

#include "runtime/generate/generate.h"
#include "tools/commands/opened_replicas.h"

namespace cleave::tools {

struct RunPrediction {
    double prefill_ms = 0;
    double decode_ms_per_token = 0;  // as GenerateResult; 0 where no sequence has a second token
    double tokens_per_second = 0;
};

// By the event simulation of each replica's plan; times of the slowest replica, tokens/s of all.
RunPrediction predict_run(const std::vector<planner::Plan>& replicas,
                          const std::vector<std::vector<int32_t>>& prompts,
                          const std::vector<runtime::SequenceResult>& sequences);

}  // namespace cleave::tools
