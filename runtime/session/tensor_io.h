// SPDX-License-Identifier: Apache-2.0
// The inputs and outputs of a plan over tensors: which there are, and whether given ones fit.
#pragma once

#include <span>
#include <vector>

#include "planner/plan/plan.h"
#include "runtime/execute/tensor.h"

namespace cleave::runtime {

// The bytes of each input of the graph, in its order; they view `given`. UserError for one that is
// missing, given twice, unknown, of another type or shape, or (row numbers into a table) out of
// range; and for a Llama.
std::vector<std::span<const std::byte>> match_tensor_inputs(const planner::Plan& plan,
                                                            std::span<const Tensor> given);

// The graph's outputs, with room for their data.
std::vector<Tensor> tensor_outputs(const planner::Plan& plan);

// UserError when the graph takes tensors.
void check_takes_batches(const planner::Plan& plan);

}  // namespace cleave::runtime
