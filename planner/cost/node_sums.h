// SPDX-License-Identifier: Apache-2.0
// All-reduces over several nodes as the vendors' libraries carry them out: LogGP with two levels
// (Alexandrov et al., SPAA 1995) and NCCL's constants (src/graph/tuning.cc). In: how many nodes and
// members, a payload. Out: ns. A tree is a chain inside each node and a binary tree over the nodes;
// a hierarchical sum is a reduce-scatter inside each node, a ring over the nodes for each part, and
// an all-gather inside.
//
// Against NVIDIA/nccl-tests#309 (eight H100 and eight 400 Gb/s adapters a node): LL's hop and the
// rates of LL and LL128 are fitted to 2 and 4 nodes; 8 nodes are held out
// (tests/planner/cost/node_sums_test.cpp).
#pragma once

#include <cstdint>

#include "planner/machine/fabric.h"
#include "planner/plan/plan.h"

namespace cleave::planner {

struct NodeGroup {
    int64_t nodes = 1;
    int64_t members = 1;      // of the fullest node
    int64_t adapters = 1;     // of the node that has fewest for its members
    double adapter_rate = 1;  // bytes/s of one, one direction
    double slower = 1;        // hops than the fabric's: a machine file's links may be others
    int64_t in_node_ns = 0;   // of an all-reduce of the payload among a node's members
};

// `form`: kTree, INT64_MAX where the fabric has none, or kHierarchical. `bytes` of one member.
int64_t node_sum_ns(const Fabric& fabric, const NodeGroup& group, int64_t bytes, SumForm form);

}  // namespace cleave::planner
