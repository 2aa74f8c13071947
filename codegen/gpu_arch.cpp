// SPDX-License-Identifier: Apache-2.0
#include "codegen/gpu_arch.h"

#include <algorithm>

#include <fmt/format.h>

namespace cleave::codegen {

Occupancy predict_occupancy(const GpuArch& arch, int64_t threads, int64_t shared_bytes,
                            int64_t registers) {
    Occupancy o;
    o.most_warps = arch.threads_of_unit / arch.warp_width;
    int64_t warps = (threads + arch.warp_width - 1) / arch.warp_width;
    if (warps == 0) return o;
    o.blocks = o.most_warps / warps;
    // NVIDIA's runtime keeps 1 KiB of each block for itself from sm_80 on.
    int64_t shared = shared_bytes + (arch.nvidia && arch.number >= 80 ? 1024 : 0);
    if (shared > 0) o.blocks = std::min(o.blocks, arch.shared_of_unit / shared);
    if (registers > 0) {
        // Registers are given out in eights; AMD's hold one warp's lanes of one SIMD, of which a unit has 4, RDNA's 2.
        int64_t given = (registers + 7) / 8 * 8;
        int64_t simds = arch.warp_width == 64 ? 4 : 2;
        int64_t by_registers =
            arch.nvidia ? arch.registers / (given * arch.warp_width) / warps
                        : simds * (arch.registers / arch.warp_width / simds / given) / warps;
        o.blocks = std::min(o.blocks, by_registers);
    }
    o.warps = o.blocks * warps;
    return o;
}

bool multiplies_matrices_of(const GpuArch& arch, DType staged) {
    using enum MatrixInstruction;
    if (staged == DType::kF16 || staged == DType::kBF16) return arch.matrix != kNone;
    return staged == DType::kF32 && (arch.matrix == kMfma || arch.matrix == kMfmaGfx908);
}

std::vector<std::string> arch_defines(const GpuArch& arch) {
    std::vector<std::string> defines = {arch.nvidia ? fmt::format("CLEAVE_SM={}", arch.number)
                                                    : fmt::format("CLEAVE_GFX={:#x}", arch.number)};
    if (arch.warpgroups) defines.emplace_back("CLEAVE_WGMMA=1");
    return defines;
}

}  // namespace cleave::codegen
