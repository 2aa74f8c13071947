// SPDX-License-Identifier: Apache-2.0
// Plans over a grid of requests: each combination of the axes' values planned, or why it is none.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "planner/ask/case.h"
#include "planner/ask/figures.h"

namespace cleave::planner {

// "devices", "batch", "context", "prompt", "dtype", "kv-dtype", "tp", "pp"; values as written.
struct SweepAxis {
    std::string name;
    std::vector<std::string> values;
};

struct SweepRow {
    std::vector<std::string> values;  // one an axis
    std::optional<Figures> figures;
    std::string refusal;  // why there is no plan
    bool lacks_memory = false;
};

struct Sweep {
    std::string model;
    std::vector<SweepAxis> axes;
    std::vector<SweepRow> rows;  // the last axis changes fastest
};

// Axes that can be swept: "devices, batch, ...".
std::string sweep_axes();

// "batch=1,16,64"; sizes may be "32k". UserError for an unknown axis, no values, or one that is no
// value of the axis.
SweepAxis parse_axis(const std::string& text);

// `progress(done, of)` after each row, one call at a time, on any thread. UserError for more than
// 4,096 rows, two axes of one name, and more devices than there are, where no further ones can be
// like them.
Sweep sweep(const Case& base, const std::vector<SweepAxis>& axes,
            const std::function<void(size_t done, size_t of)>& progress = {});

// 32768 of "32k", 2097152 of "2m", 64 of "64"; nothing for what is no whole number of 1 or more.
std::optional<int64_t> parse_size(const std::string& text);

}  // namespace cleave::planner
