// SPDX-License-Identifier: Apache-2.0
// Forms of weights as GPU kernels take them: which go together, what the arithmetic of tiles needs
// to know, and what integers that a plan asks for become.
#pragma once

#include <string_view>
#include <vector>

#include "codegen/kernel/spec.h"
#include "planner/tiles/gpu.h"

namespace cleave::codegen {

// UserError unless all are equal: matrices of one launch share their main loop.
void one_format(std::string_view what, const std::vector<WeightFormat>& formats);

// Puts a matrix's form into its shape. UserError for products of integers.
void set_format(const WeightFormat& format, std::string_view what, planner::ProductShape& shape);

// A type that no dense matrix has (int8, int4) becomes the form that `--dtype` makes of it.
KernelSpec with_settled_formats(KernelSpec spec);

}  // namespace cleave::codegen
