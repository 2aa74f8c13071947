// SPDX-License-Identifier: Apache-2.0
// NVIDIA: CUDA C++ Programming Guide, "Technical specifications per compute capability" (shared memory per block
// with opt-in); sm_88, sm_103, sm_110 and sm_121: CCCL, libcudacxx/include/cuda/__device/arch_traits.h. AMD: 64 KiB of LDS
// a workgroup and 1024 work items on all of these; registers from the ISA manuals (512 VGPRs a lane on CDNA, AGPRs among
// them; 256 otherwise). Resident threads: the same tables of NVIDIA; AMD's waves of a SIMD times its SIMDs and lanes (10 on
// gfx906 and gfx908, 8 on gfx90a and gfx942, 16 of wave32 on RDNA's two). Warpgroups: PTX ISA, wgmma ("requires sm_90a").
#include "planner/gpu_arch.h"

#include "runtime/base/errors.h"

namespace cleave::planner {

const std::vector<GpuArch>& gpu_archs() {
    using enum MatrixInstruction;
    constexpr int64_t kKiB = 1024, kLds = 64 * kKiB;
    static const std::vector<GpuArch> archs = {
        {"sm_70", 70, true, 32, 96 * kKiB, 65536, 255, 1024, kNone, 96 * kKiB, 2048},
        {"sm_75", 75, true, 32, 64 * kKiB, 65536, 255, 1024, kNone, 64 * kKiB, 1024},
        {"sm_80", 80, true, 32, 163 * kKiB, 65536, 255, 1024, kMmaSync, 164 * kKiB, 2048},
        {"sm_86", 86, true, 32, 99 * kKiB, 65536, 255, 1024, kMmaSync, 100 * kKiB, 1536},
        {"sm_87", 87, true, 32, 163 * kKiB, 65536, 255, 1024, kMmaSync, 164 * kKiB, 1536},
        {"sm_88", 88, true, 32, 99 * kKiB, 65536, 255, 1024, kMmaSync, 100 * kKiB, 1536},
        {"sm_89", 89, true, 32, 99 * kKiB, 65536, 255, 1024, kMmaSync, 100 * kKiB, 1536},
        {"sm_90", 90, true, 32, 227 * kKiB, 65536, 255, 1024, kMmaSync, 228 * kKiB, 2048},
        {"sm_90a", 90, true, 32, 227 * kKiB, 65536, 255, 1024, kMmaSync, 228 * kKiB, 2048, true},
        {"sm_100", 100, true, 32, 227 * kKiB, 65536, 255, 1024, kMmaSync, 228 * kKiB, 2048},
        {"sm_103", 103, true, 32, 227 * kKiB, 65536, 255, 1024, kMmaSync, 228 * kKiB, 2048},
        {"sm_110", 110, true, 32, 227 * kKiB, 65536, 255, 1024, kMmaSync, 228 * kKiB, 1536},
        {"sm_120", 120, true, 32, 99 * kKiB, 65536, 255, 1024, kMmaSync, 100 * kKiB, 1536},
        {"sm_121", 121, true, 32, 99 * kKiB, 65536, 255, 1024, kMmaSync, 100 * kKiB, 1536},
        {"gfx906", 0x906, false, 64, kLds, 65536, 256, 1024, kNone, 64 * kKiB, 2560},
        {"gfx908", 0x908, false, 64, kLds, 65536, 512, 1024, kMfmaGfx908, 64 * kKiB, 2560},
        {"gfx90a", 0x90a, false, 64, kLds, 131072, 512, 1024, kMfma, 64 * kKiB, 2048},
        {"gfx942", 0x942, false, 64, kLds, 131072, 512, 1024, kMfma, 64 * kKiB, 2048},
        {"gfx1030", 0x1030, false, 32, kLds, 65536, 256, 1024, kNone, 64 * kKiB, 1024},
        {"gfx1100", 0x1100, false, 32, kLds, 98304, 256, 1024, kWmmaGfx11, 64 * kKiB, 1024},
        {"gfx1101", 0x1101, false, 32, kLds, 98304, 256, 1024, kWmmaGfx11, 64 * kKiB, 1024},
        {"gfx1102", 0x1102, false, 32, kLds, 65536, 256, 1024, kWmmaGfx11, 64 * kKiB, 1024},
        {"gfx1200", 0x1200, false, 32, kLds, 98304, 256, 1024, kWmmaGfx12, 64 * kKiB, 1024},
        {"gfx1201", 0x1201, false, 32, kLds, 98304, 256, 1024, kWmmaGfx12, 64 * kKiB, 1024},
    };
    return archs;
}

const GpuArch* find_gpu_arch(std::string_view name) {
    for (const GpuArch& arch : gpu_archs())
        if (arch.name == name) return &arch;
    return nullptr;
}

const GpuArch& gpu_arch(std::string_view name) {
    if (const GpuArch* arch = find_gpu_arch(name)) return *arch;
    throw UserError("'{}' is no GPU architecture that Cleave writes kernels for; choose one of {}",
                    name, gpu_arch_names());
}

std::string gpu_arch_names() {
    std::string names;
    for (const GpuArch& arch : gpu_archs())
        names += (names.empty() ? "" : ", ") + std::string(arch.name);
    return names;
}

}  // namespace cleave::planner
