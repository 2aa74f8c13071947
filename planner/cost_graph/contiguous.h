// SPDX-License-Identifier: Apache-2.0
// Contiguous plans: devices take differences of downward-closed sets. Exact over all of them when
// they are few (the ideals' lattice); over given linear orders of the pieces otherwise.
#pragma once

#include <optional>
#include <string>

#include "planner/cost_graph/classes.h"

namespace cleave::planner::cost_graph {

struct Assignment {
    double max_load = 0;
    std::vector<int> device;  // by piece: accelerators from 0, then CPUs
};

// The best plan whose devices take runs of `order`; nothing when none keeps the memory cap.
std::optional<Assignment> cut_order(const CostGraph& graph, const Pieces& pieces,
                                    const std::vector<int>& order);

// The optimum over all contiguous plans, or nothing when there are more than `max_ideals`
// downward-closed sets, or too many pairs of them. `known`: a plan to beat; it is returned when
// nothing does. `least`: no plan is below it.
std::optional<Assignment> cut_ideals(const CostGraph& graph, const Pieces& pieces,
                                     const std::optional<Assignment>& known, double least,
                                     size_t max_ideals);

// A topological order that keeps METIS's parts together: of the ready pieces, one of the part in
// work, else of the part whose pieces stand earliest.
std::vector<int> metis_order(const Pieces& pieces, int parts, int64_t seed);

}  // namespace cleave::planner::cost_graph
