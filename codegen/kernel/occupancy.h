// SPDX-License-Identifier: Apache-2.0
// What kernels make of an architecture of planner/machine/gpu_arch.h: the blocks that a compute
// unit holds, the matrix instruction for a type, and the macros that name it to the prelude.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "planner/machine/gpu_arch.h"
#include "runtime/base/dtype.h"

namespace cleave::codegen {

using planner::find_gpu_arch;
using planner::gpu_arch;
using planner::gpu_arch_names;
using planner::gpu_archs;
using planner::GpuArch;
using planner::MatrixInstruction;

// How many blocks of a launch a compute unit (GpuArch::unit) holds at once: by threads, shared
// memory and, where known (> 0), registers a thread. `warps` are those of all these blocks, of
// `most_warps` that a unit can hold. 0 blocks: no launch may have such a block. Scalar registers
// (AMD), named barriers and clusters (NVIDIA) are not counted.
struct Occupancy {
    int64_t blocks = 0, warps = 0, most_warps = 0;
};
Occupancy predict_occupancy(const GpuArch& arch, int64_t threads, int64_t shared_bytes,
                            int64_t registers);

// "multiprocessor", "compute unit", "workgroup processor": what the occupancy is of.
std::string_view unit_name(const GpuArch& arch);

// Whether it has a matrix instruction for products of that type as kernels stage it: f16, bf16 or
// f32.
bool multiplies_matrices_of(const GpuArch& arch, DType staged);

// The architecture that a Program's arch "simt:sm_80" imitates; empty for others.
std::string_view simt_arch_of(std::string_view program_arch);
// The architecture that a Program's kernels are written for, imitated or not.
std::string_view gpu_arch_of(std::string_view program_arch);
inline constexpr std::string_view kSimtPrefix = "simt:";

// "CLEAVE_SM=80", "CLEAVE_GFX=0x90a", "CLEAVE_WGMMA=1": what the prelude's simt back end reads.
std::vector<std::string> arch_defines(const GpuArch& arch);

}  // namespace cleave::codegen
