// SPDX-License-Identifier: Apache-2.0
// A cost graph contracted to the pieces that move as one: colour classes, and (for contiguous
// plans) whatever a cycle between classes ties together. Invariant: pieces stand in a topological
// order when `acyclic`.
#pragma once

#include <vector>

#include "planner/cost_graph/cost_graph.h"

namespace cleave::planner::cost_graph {

// A node whose output leaves its piece: `cost` once for the producer and once for each reading
// device.
struct Output {
    int piece = 0;
    double cost = 0;
    std::vector<int> readers;  // other pieces, each once
};

struct Pieces {
    int count = 0;
    std::vector<int> of_node;                    // piece of each node
    std::vector<double> accelerator, cpu, size;  // by piece; infinite where it may not run
    std::vector<Output> outputs;
    std::vector<std::vector<int>> makes, reads;   // outputs by the piece that makes / reads them
    std::vector<std::vector<int>> before, after;  // neighbouring pieces, each once
};

Pieces contract(const CostGraph& graph, bool acyclic);

}  // namespace cleave::planner::cost_graph
