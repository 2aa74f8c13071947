// SPDX-License-Identifier: Apache-2.0
// What a GPU architecture fixes: warp width, limits of a block, matrix instruction. Read by the kernel generator,
// by the compilers' resource checks and by the CPU's imitation of these devices.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/dtype.h"

namespace cleave::codegen {

// kMfmaGfx908 is kMfma with half the depth for bf16.
enum class MatrixInstruction : uint8_t {
    kNone,
    kMmaSync,
    kMfma,
    kMfmaGfx908,
    kWmmaGfx11,
    kWmmaGfx12
};

struct GpuArch {
    std::string_view name;  // "sm_80", "gfx90a"
    int number = 0;         // 80; 0x90a
    bool nvidia = true;
    int warp_width = 32;
    int64_t shared_bytes = 0;  // of one block, at most
    int64_t registers = 0;     // 32-bit, of one block (NVIDIA) or compute unit and SIMD (AMD)
    int registers_per_thread = 0;
    int max_threads = 1024;  // of one block
    MatrixInstruction matrix = MatrixInstruction::kNone;
    int64_t shared_of_unit = 0;  // bytes of a compute unit (SM, CU), for all its blocks
    int threads_of_unit = 0;     // resident there, at most
};

// How many blocks of a launch a compute unit holds at once, by threads, shared memory and, where known (> 0), registers a
// thread; and the warps that makes of those that it could hold.
struct Occupancy {
    int64_t blocks = 0, warps = 0, most_warps = 0;
};
Occupancy predict_occupancy(const GpuArch& arch, int64_t threads, int64_t shared_bytes,
                            int64_t registers);

// Null for a name that is not in the table.
const GpuArch* find_gpu_arch(std::string_view name);
// UserError with the names that are.
const GpuArch& gpu_arch(std::string_view name);
const std::vector<GpuArch>& gpu_archs();
// "sm_70, sm_75, ...".
std::string gpu_arch_names();

// Whether a launch may begin before the one before it has ended (programmatic dependent launch: CUDA C++ Programming Guide,
// compute capability 9.0 on).
inline bool overlaps_launches(const GpuArch& arch) { return arch.nvidia && arch.number >= 90; }

// Whether it multiplies by warpgroups (wgmma), beside its matrix instruction of a warp.
bool has_warpgroups(const GpuArch& arch);
// Whether it has a matrix instruction for products of that type as kernels stage it: f16, bf16 or f32.
bool multiplies_matrices_of(const GpuArch& arch, DType staged);

// "CLEAVE_SM=80", "CLEAVE_GFX=0x90a", "CLEAVE_WGMMA=1": what the prelude's simt back end reads.
std::vector<std::string> arch_defines(const GpuArch& arch);

}  // namespace cleave::codegen
