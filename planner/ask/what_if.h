// SPDX-License-Identifier: Apache-2.0
// What the plan would be with other devices, another workload, other dtypes or faster links: that
// one planned, beside the one there is.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "planner/ask/case.h"
#include "planner/ask/diff.h"

namespace cleave::planner {

struct Change {
    std::vector<std::string> add, remove;  // lists of devices
    int64_t batch = 0, context = 0;        // 0: as it is
    std::optional<DType> dtype, kv_dtype;
    std::vector<std::pair<std::string, double>> links;  // "nvlink" and 2: twice as fast

    bool any() const {
        return !add.empty() || !remove.empty() || batch > 0 || context > 0 || dtype || kv_dtype ||
               !links.empty();
    }
};
// "sim:h100[8] more, context 32768".
std::string change_text(const Change& change);

// `asked` with it. A shape that was forced is left to the planner where the number of devices
// changes. UserError for devices and links that there are not, or are already.
Case changed(Case asked, const Change& change);

struct WhatIfAnswer {
    std::string answer;
    Figures before;
    std::optional<Figures> after;
    std::optional<PlanDiff> diff;
    Outcome outcome;
    bool shape_was_freed = false;
};
WhatIfAnswer what_if(const Plan& plan, const Case& asked, const Change& change);

}  // namespace cleave::planner
