// SPDX-License-Identifier: Apache-2.0
// How many groups of sequences are worth having in flight, read off a plan's own costs. While one
// group is in a stage of a pipeline, another one may be in the next; but each pass of a smaller
// group reads all weights again. With g groups of live / g sequences all of them get a token in
// max(time of a pass, g * time of the busiest device): decode that waits for memory gains nothing
// from more groups, decode that waits for arithmetic or for keys does. On one host at most a group
// a stage: a device runs its steps in order. Between hosts groups are under way, too.
#pragma once

#include <cstdint>
#include <functional>

#include "planner/cost/simulate.h"
#include "planner/plan/plan.h"

namespace cleave::planner {

// One decode pass by itself: from its begin to its end, and in the device or set of cores that it
// needs longest.
struct PassTime {
    int64_t whole_ns = 0, busiest_ns = 0;
};

// Of simulated times, where devices on the host's cores have `threads` of its `cores` each.
PassTime pass_time_of(const Plan& plan, const PhaseTimes& times,
                      const std::vector<int64_t>& threads, int64_t cores);

// As many as may be worth having: one a stage, more where a group is long on its way between hosts,
// and one alone where a device comes back for another stage. At most kMostGroups.
int64_t most_groups(const Plan& plan);

// Until `groups` groups of `live` sequences in all have a token each.
int64_t round_ns(int64_t live, int64_t groups, const std::function<PassTime(int64_t)>& pass_time);

// The fewest groups, of `most` at most, that take at most 5 % longer than the best number does.
// `pass_time` of a number of sequences.
int64_t best_groups(int64_t live, int64_t most,
                    const std::function<PassTime(int64_t sequences)>& pass_time);

inline constexpr int64_t kAllCores = 1 << 20;  // core_shares of so many are shares of the whole

// Of a plan whose devices on the host's cores have `threads` a stage, where the host has `cores`:
// stages that share cores do not work at once for nothing.
int64_t groups_in_flight(const Plan& plan, int64_t live, int64_t threads = kAllCores,
                         int64_t cores = kAllCores);

}  // namespace cleave::planner
