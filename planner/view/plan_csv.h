// SPDX-License-Identifier: Apache-2.0
// A plan's tables as CSV (planner/view/csv.h): what its JSON has in lists, a row an element.
#pragma once

#include <string>
#include <vector>

#include "planner/plan/plan.h"

namespace cleave::planner {

struct NamedTable {
    std::string name;  // "devices"; of a file, "devices.csv"
    std::string text;  // CSV
};

// "devices", of all replicas; "steps" of both phases; "links" of the first replica's machine.
std::vector<NamedTable> plan_tables(const Plan& plan);

}  // namespace cleave::planner
