// SPDX-License-Identifier: Apache-2.0
// How values and weights are stored on devices: type, bytes, alignment. One rule each, which
// memory, cost and search ask.
#pragma once

#include <cstdint>
#include <optional>

#include "importer/graph/graph.h"
#include "planner/plan/workload.h"
#include "runtime/base/rounding.h"

namespace cleave::planner {

// dtype of a weight on devices: --dtype for matrices (quantised ones are expanded), as the graph
// has it otherwise, which is quantised by make_plan where --dtype says so.
DType device_dtype(const importer::Weight& weight, const Workload& workload);

// What a product with the matrix rounds its activations to where the plan computes fast: bf16, int8
// in groups of kRoundingGroup, or nothing.
std::optional<DType> activation_rounding(const importer::Weight& weight, const Workload& workload);
// Whether it does for any product of the graph.
bool any_product_rounds(const importer::Graph& graph, const Workload& workload);

// Columns of a matrix that one scale serves on devices, so that no cut may part them; else 1.
int64_t column_block(const importer::Weight& weight, const Workload& workload);

// Bytes of rows x columns of a weight on a device, packed, with scales where there are some.
int64_t shard_bytes(const importer::Weight& weight, int64_t rows, int64_t columns, DType dtype);
// Bytes of all weights of the graph, each once.
int64_t weights_bytes(const importer::Graph& graph, const Workload& workload);

inline constexpr int64_t kAlignment = 256;
inline int64_t align_up(int64_t bytes) { return round_up(bytes, kAlignment); }

}  // namespace cleave::planner
