// SPDX-License-Identifier: Apache-2.0
// Event simulation of a plan's steps, which alone scores plans, baselines and brute force alike.
// Each device runs its steps in order; a transfer or collective starts when all its members have
// reached it; members of a bandwidth domain slow each other down when they want more than it has.
// Fills predicted_ns and start_ns of every step and the plan's Prediction, but for the lower bound.
// Its objective_ns is what the objective's row (planner/plan/objective.h) makes of the times, or,
// where it serves many, a round (planner/cost/serving.h).
#pragma once

#include <cstdint>
#include <vector>

#include "planner/analysis/analysis.h"
#include "planner/plan/plan.h"

namespace cleave::planner {

void simulate(const Analysis& analysis, Plan& plan);

struct PhaseTimes {
    int64_t whole_ns = 0;
    std::vector<int64_t> busy_ns;  // by device
};
// One decode pass of the plan with a token of each of so many sequences, whatever its workload's
// batch is.
PhaseTimes decode_times(const Analysis& analysis, const Plan& plan, int64_t sequences);

// One pass: of so many tokens, of which `outputs` give logits, each with so many keys on average.
struct PassExtent {
    bool is_prefill = false;
    int64_t tokens = 1, outputs = 1, keys = 1;
};
// The workload that has such passes: prompts of which each pass takes so many tokens, or that many
// sequences that decode.
Workload workload_of_pass(Workload workload, const PassExtent& pass);

// When a step begins and ends in one pass, with what its neighbours take of memory and links;
// `fixed_ns` of it is launching and latency, whatever its bytes.
struct StepSpan {
    int64_t start_ns = 0, end_ns = 0, fixed_ns = 0;
};
// By step, in the pass of a phase at the point of `workload`.
std::vector<StepSpan> step_spans(const Analysis& analysis, const Plan& plan, bool is_prefill,
                                 const Workload& workload);

// Whether a device has several stages: its steps run in order, so no pass overtakes another there.
bool has_virtual_stages(const Plan& plan);

// Tokens generated after one prompt, which share its prefill time.
int64_t generated_tokens(const Workload& workload);

}  // namespace cleave::planner
