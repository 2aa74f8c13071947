// SPDX-License-Identifier: Apache-2.0
// The exact dynamic programme: units in order, cut into runs; each run on a contiguous range of the
// device order, of any length, which is its tensor-parallel degree; memory a hard cap on every
// device. It finds the least sum of stage costs subject to a cap on each stage's cost. O(devices x
// degrees x units) by sliding-window minima: what a stage may hold shrinks from the left as it
// grows to the right.
#pragma once

#include <optional>
#include <vector>

#include "planner/search/cost_tables.h"
#include "planner/search/pins.h"

namespace cleave::planner {

// On so many the search can afford shapes that are rarely best.
inline constexpr int kFewDevices = 16;
// Of more the search tries fewer widths and places, alike ones once.
inline constexpr int kManyDevices = 64;

struct StageQuery {
    int64_t cap = INT64_MAX;            // on each stage's cost
    int tensor_parallel = 0;            // 0: any
    int pipeline_stages = 0;            // 0: any
    bool may_skip = true;               // devices may stay unused
    int64_t device_cost = 0;            // added for every device used: for fewest devices
    bool may_split = true;              // tensor parallelism, when its degree is open
    bool fan_out = false;               // one device sends to all of the next stage, the worst case
    bool whole_layers = false;          // cut between layers only
    bool ignore_memory = false;         // to say what would be needed
    const PinnedUnits* pins = nullptr;  // device that each unit's stage must have
};

struct StageSolution {
    struct Stage {
        int first_device, count;    // of the tables' order
        int first_unit, last_unit;  // [first, last)
        ShareMode mode;
    };
    std::vector<Stage> stages;
    int64_t sum = 0;      // of costs, entry and device costs included
    int64_t largest = 0;  // stage cost
};

// Nothing when no plan fits. Ties go to fewer devices, then to the earlier cut.
std::optional<StageSolution> best_stages(CostTables& tables, const std::vector<Unit>& units,
                                         const StageQuery& query);

// Degrees the search tries on up to `devices`.
std::vector<int> tensor_parallel_degrees(int devices, bool allowed);

}  // namespace cleave::planner
