// SPDX-License-Identifier: Apache-2.0
// A spec -> the GPU kernel: source, entry name, hash, launch, tile and claims.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "codegen/kernel/program.h"
#include "codegen/kernel/spec.h"

namespace cleave::codegen {

// `kind` and `fused` (operator kinds in order) name it. UserError when a dtype or form of weights
// is none that GPU kernels read; InternalError when the kernel's shared memory is over the tile's
// claim or the device's limit.
Kernel make_gpu_kernel(const KernelSpec& spec, planner::KernelKind kind,
                       const std::vector<std::string>& fused, const GpuTarget& target);

// The kernel of the same step and arguments with the next smaller tile; nothing where there is
// none.
std::optional<Kernel> with_smaller_tile(const Kernel& kernel);

// A kernel beside the steps of a plan. The target's tile is not read.
Kernel make_gpu_helper(const GpuHelperSpec& spec, const GpuTarget& target);

// Which further arguments an attention step takes there.
bool is_prefill_attention(const planner::Tile& tile);
bool attention_is_split(const planner::Tile& tile);

// In words, by what a block of a kernel of that kind takes (planner/tiles/gpu.h): "64 queries x 32
// keys at a time, 128 threads".
std::string describe_tile(planner::KernelKind kind, const planner::Tile& tile);

}  // namespace cleave::codegen
