// SPDX-License-Identifier: Apache-2.0
// What a replica gives many users at once. In: a plan with its memory, the times of its passes.
// Out: its Serving. Each of the workload's `batch` sequences is a user with a slot and KV for a
// whole context, and when one ends the next prompt takes its place. With g groups in flight of b
// sequences
//
//     round = max(pass(b), g * busiest(b)) + batch * busiest of a prompt / generated tokens
//
// where busiest is the time of the device, or the set of cores, that a pass needs longest. In a
// round every user has a token: it is the time per output token. The groups are those of the
// shortest round, as many as most_groups() at most.
#pragma once

#include <cstdint>
#include <functional>

#include "planner/cost/simulate.h"
#include "planner/plan/plan.h"

namespace cleave::planner {

// `prefill`: of all the workload's prompts. `prompt_ns`: of one alone. `decode`: of a pass of so
// many sequences. `prediction` of the plan has the decode times of its batch.
Serving serving_of(const Plan& plan, const PhaseTimes& prefill, int64_t prompt_ns,
                   const std::function<PhaseTimes(int64_t sequences)>& decode);

}  // namespace cleave::planner
