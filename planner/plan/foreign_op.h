// SPDX-License-Identifier: Apache-2.0
// Operators of other compilers (tools/libcleave/include/cleave.h, cleave_graph_add_operator):
// nothing is known of them but what they cost and how they may be divided. In a Graph they are
// operators over tensors with one attribute of integers, which this file writes and reads. An
// operator without it is no foreign one.
#pragma once

#include <cstdint>
#include <optional>

#include "importer/graph/graph.h"

namespace cleave::planner {

enum class ForeignSplit : uint8_t {
    kOnce,         // whole, on one device: its stage has no other
    kRepeated,     // whole, on each device of its stage
    kByOutput,     // some columns of its output, from whole inputs; weights are cut by rows
    kByInput,      // a summand, from some columns of its first input; weights are cut by columns
    kElementwise,  // column by column; weights are cut by rows
};

struct ForeignOp {
    ForeignSplit split = ForeignSplit::kOnce;
    int64_t split_units = 1;  // kByOutput: of the output's columns; kByInput: of the first input's
    int64_t flops_per_token = 0;             // besides TensorAttrs::flops
    int64_t bytes = 0, bytes_per_token = 0;  // moved besides inputs, output and weights
};

void set_foreign_op(importer::TensorAttrs& attrs, const ForeignOp& op);
std::optional<ForeignOp> foreign_op(const importer::Op& op);

// Whether a stage that has it must be one device.
bool stays_on_one_device(const importer::Op& op);

}  // namespace cleave::planner
