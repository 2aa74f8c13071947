// SPDX-License-Identifier: Apache-2.0
#include "planner/plan/objective.h"

#include "runtime/base/errors.h"

namespace cleave::planner {

Objective parse_objective(std::string_view name) {
    for (size_t i = 0; i < kObjectives.size(); ++i)
        if (kObjectives[i].name == name) return static_cast<Objective>(i);
    throw UserError("no objective is called '{}'; known are {}", name, objective_names());
}

std::string objective_names() {
    std::string names;
    for (const ObjectiveRow& row : kObjectives) {
        if (!names.empty()) names += ", ";
        names += row.name;
    }
    return names;
}

}  // namespace cleave::planner
