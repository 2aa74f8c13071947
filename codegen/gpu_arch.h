// SPDX-License-Identifier: Apache-2.0
// What a GPU architecture fixes: warp width, limits of a block, matrix instruction. Read by the kernel generator,
// by the compilers' resource checks and by the CPU's imitation of these devices.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cleave::codegen {

enum class MatrixInstruction : uint8_t { kNone, kMmaSync, kMfma, kWmmaGfx11, kWmmaGfx12 };

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
};

// Null for a name that is not in the table.
const GpuArch* find_gpu_arch(std::string_view name);
// UserError with the names that are.
const GpuArch& gpu_arch(std::string_view name);
const std::vector<GpuArch>& gpu_archs();
// "sm_70, sm_75, ...".
std::string gpu_arch_names();

// "CLEAVE_SM=80", "CLEAVE_GFX=0x90a": what the prelude's simt back end reads.
std::string arch_define(const GpuArch& arch);

}  // namespace cleave::codegen
