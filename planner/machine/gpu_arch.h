// SPDX-License-Identifier: Apache-2.0
// What a GPU architecture fixes: warp width, limits of a block, which instructions it has. Read by
// the choice of tiles, by the kernel generator, by the compilers' resource checks and by the CPU's
// imitation of these devices.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "planner/machine/vendor.h"

namespace cleave::planner {

// kMfmaGfx908 is kMfma with half the depth for bf16; kMfmaGfx90a reads subnormal numbers of 16 bits
// as zero (AMD, MIOpen's "MI200 matrix fused multiply-add (MFMA) behavior specifics").
enum class MatrixInstruction : uint8_t {
    kNone,
    kMmaSync,
    kMfma,
    kMfmaGfx908,
    kMfmaGfx90a,
    kWmmaGfx11,
    kWmmaGfx12
};

// What holds a block whole: a multiprocessor, a compute unit, RDNA's workgroup processor of two. It
// has kPartsOfUnit parts with schedulers, registers and warps of their own (sub-partitions, SIMDs).
struct GpuUnit {
    std::string_view name;          // "multiprocessor"
    int64_t shared_bytes = 0;       // for all its blocks
    int threads = 0;                // resident, at most
    int blocks = 0;                 // resident, at most (VendorFacts::counts_small_blocks)
    int64_t shared_granule = 0;     // bytes, in which it is given out
    int64_t shared_kept = 0;        // bytes of each block that the driver's runtime keeps
    int64_t registers_of_part = 0;  // 32-bit, over all lanes
    int64_t register_granule = 0;   // those of a warp are given out in so many
};
constexpr int kPartsOfUnit = 4;

struct GpuArch {
    std::string_view name;  // "sm_80", "gfx90a"
    int number = 0;         // 80; 0x90a
    Vendor vendor;
    int warp_width = 32;
    int64_t shared_bytes = 0;  // of one block, at most
    int64_t registers = 0;     // 32-bit, of one block (NVIDIA) or compute unit and SIMD (AMD)
    int registers_per_thread = 0;
    int max_threads = 1024;  // of one block
    MatrixInstruction matrix = MatrixInstruction::kNone;
    GpuUnit unit;
    bool warpgroups = false;  // multiplies by warpgroups, too (wgmma)
    // Its threads copy into shared memory and go on meanwhile (cp.async: PTX ISA, compute
    // capability 8.0 on).
    bool copies_asynchronously = false;
    // A launch may begin before the one before it has ended (programmatic dependent launch: CUDA
    // C++ Programming Guide, compute capability 9.0 on).
    bool overlaps_launches = false;
};

// Null for a name that is not in the table.
const GpuArch* find_gpu_arch(std::string_view name);
// UserError with the names that are.
const GpuArch& gpu_arch(std::string_view name);
const std::vector<GpuArch>& gpu_archs();
// "sm_70, sm_75, ...".
std::string gpu_arch_names();

}  // namespace cleave::planner
