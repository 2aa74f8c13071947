// SPDX-License-Identifier: Apache-2.0
// METIS (Karypis and Kumar, SIAM J. Sci. Comput. 1998) behind one function, its limits handled
// here: it knows no direction (edges are made symmetric), takes 32-bit weights (scaled down
// together), may leave parts empty (bisected recursively here, each side left with enough
// vertices), gives no contiguity (callers order and repair), prints on bad input (checked before,
// so that it never gets any), and raises signals on internal errors (trapped:
// planner/metis/metis_guard.h). Whoever asks goes on without it and says so. In: an undirected
// weighted graph. Out: a part for each vertex. Deterministic for a seed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/errors.h"

namespace cleave::planner {

struct PartitionEdge {
    int a = 0, b = 0;
    int64_t weight = 1;  // >= 0; parallel edges add up
};

// METIS gave up: a return code or a signal, in words. The search goes on without its proposals and
// names this in `why`.
class MetisError : public InternalError {
public:
    using InternalError::InternalError;
};

// `targets`: relative size of each part, one weight each; their number is the number of parts.
// Every part gets at least one vertex when there are as many vertices as parts. Thread-safe.
// MetisError when METIS gives up.
std::vector<int> partition_graph(int num_vertices, std::span<const PartitionEdge> edges,
                                 std::span<const int64_t> vertex_weights,
                                 std::span<const double> targets, int64_t seed);

}  // namespace cleave::planner
