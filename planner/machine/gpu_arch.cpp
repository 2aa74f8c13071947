// SPDX-License-Identifier: Apache-2.0
// NVIDIA: CUDA C++ Programming Guide, "Technical specifications per compute capability" (shared
// memory per block with opt-in); sm_88, sm_103, sm_110 and sm_121: CCCL,
// libcudacxx/include/cuda/__device/arch_traits.h. AMD: 64 KiB of LDS a workgroup and 1024 work
// items on all of these; registers from the ISA manuals (512 VGPRs a lane on CDNA, AGPRs among
// them; 256 otherwise). Resident threads: the same tables of NVIDIA; AMD's waves of a SIMD times
// its SIMDs and lanes (10 on gfx906 and gfx908, 8 on gfx90a and gfx942, 16 of wave32 on RDNA).
// Resident blocks, parts and granules: cuda_occupancy.h of the CUDA toolkit; for AMD LLVM,
// AMDGPUBaseInfo.cpp (getMaxWorkGroupsPerCU, getTotalNumVGPRs, getVGPRAllocGranule), RDNA in LLVM's
// default mode, in which a workgroup processor's four SIMDs and 128 KiB of LDS serve one workgroup.
// Granule of LDS: LLVM, AMDGPUUsage (GRANULATED_LDS_SIZE); from gfx1030 on Mesa, src/amd/compiler
// (lds_alloc_granule). Warpgroups: PTX ISA, wgmma ("requires sm_90a").
#include "planner/machine/gpu_arch.h"

#include "runtime/base/errors.h"

namespace cleave::planner {

namespace {

constexpr int64_t kKiB = 1024;

// A multiprocessor.
constexpr GpuUnit sm(int64_t shared_kib, int threads, int blocks) {
    return {shared_kib * kKiB, threads, blocks, 128, 65536 / kPartsOfUnit, 256};
}

// VGPRs of one lane, of a SIMD and in which they are given out.
constexpr GpuUnit compute_unit(int waves_of_simd, int vgprs, int granule) {
    return {64 * kKiB, kPartsOfUnit * waves_of_simd * 64, 16, 512, vgprs * 64, granule * 64};
}
constexpr GpuUnit workgroup_processor(int vgprs, int granule) {
    return {128 * kKiB, kPartsOfUnit * 16 * 32, 32, kKiB, vgprs * 32, granule * 32};
}

}  // namespace

const std::vector<GpuArch>& gpu_archs() {
    using enum MatrixInstruction;
    constexpr int64_t kLds = 64 * kKiB;
    constexpr GpuUnit kVega = compute_unit(10, 256, 4), kCdna = compute_unit(8, 512, 8);
    constexpr GpuUnit kRdna = workgroup_processor(1024, 16);
    constexpr GpuUnit kWideRdna = workgroup_processor(1536, 24);
    static const std::vector<GpuArch> kArchs = {
        {"sm_70", 70, true, 32, 96 * kKiB, 65536, 255, 1024, kNone, sm(96, 2048, 32)},
        {"sm_75", 75, true, 32, 64 * kKiB, 65536, 255, 1024, kNone, sm(64, 1024, 16)},
        {"sm_80", 80, true, 32, 163 * kKiB, 65536, 255, 1024, kMmaSync, sm(164, 2048, 32)},
        {"sm_86", 86, true, 32, 99 * kKiB, 65536, 255, 1024, kMmaSync, sm(100, 1536, 16)},
        {"sm_87", 87, true, 32, 163 * kKiB, 65536, 255, 1024, kMmaSync, sm(164, 1536, 16)},
        {"sm_88", 88, true, 32, 99 * kKiB, 65536, 255, 1024, kMmaSync, sm(100, 1536, 16)},
        {"sm_89", 89, true, 32, 99 * kKiB, 65536, 255, 1024, kMmaSync, sm(100, 1536, 24)},
        {"sm_90", 90, true, 32, 227 * kKiB, 65536, 255, 1024, kMmaSync, sm(228, 2048, 32)},
        {"sm_90a", 90, true, 32, 227 * kKiB, 65536, 255, 1024, kMmaSync, sm(228, 2048, 32), true},
        {"sm_100", 100, true, 32, 227 * kKiB, 65536, 255, 1024, kMmaSync, sm(228, 2048, 32)},
        {"sm_103", 103, true, 32, 227 * kKiB, 65536, 255, 1024, kMmaSync, sm(228, 2048, 32)},
        {"sm_110", 110, true, 32, 227 * kKiB, 65536, 255, 1024, kMmaSync, sm(228, 1536, 24)},
        {"sm_120", 120, true, 32, 99 * kKiB, 65536, 255, 1024, kMmaSync, sm(100, 1536, 24)},
        {"sm_121", 121, true, 32, 99 * kKiB, 65536, 255, 1024, kMmaSync, sm(100, 1536, 24)},
        {"gfx906", 0x906, false, 64, kLds, 65536, 256, 1024, kNone, kVega},
        {"gfx908", 0x908, false, 64, kLds, 65536, 512, 1024, kMfmaGfx908, kVega},
        {"gfx90a", 0x90a, false, 64, kLds, 131072, 512, 1024, kMfmaGfx90a, kCdna},
        {"gfx942", 0x942, false, 64, kLds, 131072, 512, 1024, kMfma, kCdna},
        {"gfx1030", 0x1030, false, 32, kLds, 65536, 256, 1024, kNone, kRdna},
        {"gfx1100", 0x1100, false, 32, kLds, 98304, 256, 1024, kWmmaGfx11, kWideRdna},
        {"gfx1101", 0x1101, false, 32, kLds, 98304, 256, 1024, kWmmaGfx11, kWideRdna},
        {"gfx1102", 0x1102, false, 32, kLds, 65536, 256, 1024, kWmmaGfx11, kRdna},
        {"gfx1200", 0x1200, false, 32, kLds, 98304, 256, 1024, kWmmaGfx12, kWideRdna},
        {"gfx1201", 0x1201, false, 32, kLds, 98304, 256, 1024, kWmmaGfx12, kWideRdna},
    };
    return kArchs;
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
