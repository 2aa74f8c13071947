// SPDX-License-Identifier: Apache-2.0
// A product of a prompt on GPUs whose blocks copy activations as the weights are staged, from where
// they lie or from a launch in front of the product: what the plan chose (planner::ActivationPath),
// carried out.
#pragma once

#include <optional>
#include <vector>

#include "codegen/lower/lower_step.h"

namespace cleave::codegen {

// The launch in front: its kernel's spec and arguments. It has taken the selection of rows and the
// norm from the product, which reads the step's scratch instead.
struct Preparation {
    PrepareSpec spec;
    std::vector<Arg> args;
};

// Nothing where the plan has no such launch.
std::optional<Preparation> prepare_activations(const planner::Compute& compute, DType activations,
                                               Lowered& lowered);

}  // namespace cleave::codegen
