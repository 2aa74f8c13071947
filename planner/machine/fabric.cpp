// SPDX-License-Identifier: Apache-2.0
#include "planner/machine/fabric.h"

#include <fmt/format.h>

#include "planner/machine/machine.h"

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

std::string_view network_name(const Machine& machine) {
    return machine.network_measured ? kMeasured : machine.fabric;
}

std::string network_text(std::string_view name, int64_t least_nodes, int64_t most_nodes) {
    if (name == kMeasured)
        return "times between hosts are by the latency and bandwidth that these measured";
    const Fabric* fabric = find_fabric(name);
    const std::string network =
        fabric ? fmt::format("{} ({}{})", name, fabric->words,
                             fabric->through_host ? ", through the hosts' memory" : "")
               : "a network without a name";
    const char* times = !fabric                ? "by its stated latency and bandwidth"
                        : fabric->is_published ? "modelled"
                                               : "estimated";
    if (most_nodes == 1)
        return fmt::format(
            "{} joins the nodes, of which the plan uses one at a time: times over it are {}, not "
            "run",
            fabric ? network : "a network", fabric ? times : "modelled");
    return fmt::format("{} joins {} nodes: times over it are {}, not run", network,
                       least_nodes == most_nodes ? fmt::format("{}", most_nodes)
                                                 : fmt::format("{} to {}", least_nodes, most_nodes),
                       times);
}

}  // namespace cleave::planner
