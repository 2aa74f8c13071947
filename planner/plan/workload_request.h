// SPDX-License-Identifier: Apache-2.0
// What callers say of the workload, the rest filled in: batch 1, prompt 512, context min(4096, the
// model's).
#pragma once

#include <string>

#include "planner/plan/workload.h"

namespace cleave::planner {

struct WorkloadRequest {  // 0: the default
    int64_t batch = 0, context = 0, prompt_tokens = 0;
    int64_t prefill_chunk = 512;
    int64_t kv_tokens = 0;  // or Workload::kAllThatIsLeft
};

// `max_positions` is the model's limit, 0 where there is none. UserError for a context beyond it,
// and for a prompt that leaves no room.
Workload fill_workload(const WorkloadRequest& request, int64_t max_positions);

// "layers.0-15=cuda[0]". UserError for what has no two sides.
Pin parse_pin(const std::string& text);

}  // namespace cleave::planner
