// SPDX-License-Identifier: Apache-2.0
// Event simulation of a plan's steps, which alone scores plans, baselines and brute force alike.
// Each device runs its steps in order; a transfer or collective starts when all its members have
// reached it; members of a bandwidth domain slow each other down when they want more than it has.
// Fills predicted_ns and start_ns of every step and the plan's Prediction (all but the lower
// bound).
#pragma once

#include "planner/analysis/placement.h"
#include "planner/plan/plan.h"

namespace cleave::planner {

void simulate(const Analysis& analysis, Plan& plan);

// The score of a plan whose Prediction is filled, in ns per generated token: latency: decode and
// the token's share of prefill; throughput: the busiest device's time; memory: as latency.
int64_t objective_ns(const Prediction& prediction, int64_t prefill_busy_ns,
                     const Workload& workload, Objective objective);

// Tokens generated after one prompt, which share its prefill time.
int64_t generated_tokens(const Workload& workload);

}  // namespace cleave::planner
