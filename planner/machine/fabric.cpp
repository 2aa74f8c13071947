// SPDX-License-Identifier: Apache-2.0
#include "planner/machine/fabric.h"

namespace cleave::planner {

const Fabric* find_fabric(std::string_view name) {
    for (const Fabric& fabric : kFabrics)
        if (fabric.name == name) return &fabric;
    return nullptr;
}

std::string fabric_names() {
    std::string names;
    for (const Fabric& fabric : kFabrics)
        names += (names.empty() ? "" : ", ") + std::string(fabric.name);
    return names;
}

}  // namespace cleave::planner
