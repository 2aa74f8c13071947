// SPDX-License-Identifier: Apache-2.0
// A product of a prompt on GPUs that copy asynchronously: activations come as the weights are staged, from where they are
// or from a launch in front of the product, as the plan has it (planner/gpu_tiles.h, pays_to_prepare).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "codegen/lower_step.h"

namespace cleave::codegen {

// The launch in front: its kernel's spec and arguments. It has taken the selection of rows and the norm from the product,
// which reads the step's scratch instead.
struct Preparation {
    PrepareSpec spec;
    std::vector<Arg> args;
};

// Nothing where the step has no scratch for it, or `lowered` is no product. The product then takes activations of the
// weights' type as they are, if that was its plan.
std::optional<Preparation> prepare_activations(const planner::Compute& compute,
                                               std::string_view arch, DType activations,
                                               Lowered& lowered);

// What is left of a step's operators for the product.
std::vector<std::string> without_prepared(std::vector<std::string> fused);

}  // namespace cleave::codegen
