// SPDX-License-Identifier: Apache-2.0
// The matrix instructions, by the same table of fragment layouts that the kernels use
// (codegen/templates/gpu/fragments.cuh). Products in f32, added in depth order; hardware may round
// otherwise.
#pragma once

#include <array>
#include <cstdint>

#include "codegen/kernel/occupancy.h"

namespace cleave::runtime::simt {

struct Warp;

// c += a b of one warp, whose operands its lanes have given: 16 deep, by as many instructions as
// that takes. `kind`: 0 f16, 1 bf16, 2 f32.
void multiply_add(codegen::MatrixInstruction instruction, int kind, Warp& warp);

// sum [64, n] += a b for operands of a warpgroup, given by their descriptors, in `shared`.
void multiply_add_warpgroup(int kind, int n, const char* shared, uint64_t a, uint64_t b,
                            float* sum);
// The same with A in registers, four of each thread, and B transposed.
using WarpgroupFragments = std::array<std::array<uint32_t, 4>, 128>;
void multiply_add_warpgroup(int kind, int n, const char* shared, const WarpgroupFragments& a,
                            uint64_t b, float* sum);

}  // namespace cleave::runtime::simt
