// SPDX-License-Identifier: Apache-2.0
// A bound below every plan of the objective, for any stages and shards, computed from the
// graph and the machine alone and apart from the search. In: ns per generated token, as plans are
// scored.
#pragma once

#include "planner/analysis/analysis.h"

namespace cleave::planner {

// Latency and memory: each group is computed on t devices for some t, at best in proportion to the
// t fastest, and a split sum then needs at least an all-reduce over the best link; groups follow
// each other. Throughput: the busiest device is busy at least for all the work spread over the
// devices, by linear programming's dual. All: what the fast devices have no memory for is read by
// slower ones. At least 1.
int64_t lower_bound_ns(const Analysis& analysis, const Machine& machine, const Workload& workload,
                       Objective objective);

}  // namespace cleave::planner
