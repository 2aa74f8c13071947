// SPDX-License-Identifier: Apache-2.0
// What a stage or a device has of the decoder's layers, in words. A layer that two stages share is
// said by its half: "20-29, attention of 30" and "MLP of 30, 31-39".
#pragma once

#include <string>
#include <vector>

#include "planner/plan/plan.h"

namespace cleave::planner {

// Whole layers [first, last], and the halves that the stage has of those before and behind them.
struct StageLayers {
    int first = 0, last = -1;   // last < first: no whole one
    std::string before, after;  // "MLP of 20", "attention of 30"; or empty

    int whole() const { return last - first + 1; }
    bool has_halves() const { return !before.empty() || !after.empty(); }
    std::string text() const;  // "-" for none at all
};

StageLayers layers_of(const Plan& plan, size_t stage);

// "3", "0-3".
std::string first_to_last(int64_t first, int64_t last);

}  // namespace cleave::planner
