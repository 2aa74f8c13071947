// SPDX-License-Identifier: Apache-2.0
// NVIDIA: CUDA C++ Programming Guide, "Technical specifications per compute capability" (shared
// memory per block with opt-in); sm_88, sm_103, sm_110 and sm_121: CCCL,
// libcudacxx/include/cuda/__device/arch_traits.h. AMD: 64 KiB of LDS a workgroup (of gfx950, which
// has 160, kernels take so many, too) and 1024 work items on all of these; registers from the ISA
// manuals (512 VGPRs a lane on CDNA, AGPRs among them; 256 otherwise). Resident threads: the same
// tables of NVIDIA; AMD's waves of a SIMD times its SIMDs and lanes (10 on gfx906 and gfx908, 8 on
// newer CDNA, 16 of wave32 on RDNA). Resident blocks, parts and granules: cuda_occupancy.h of the
// CUDA toolkit; for AMD LLVM, AMDGPUBaseInfo.cpp (getMaxWorkGroupsPerCU, getTotalNumVGPRs,
// getVGPRAllocGranule), RDNA in LLVM's default mode, in which a workgroup processor's four SIMDs
// and 128 KiB of LDS serve one workgroup. Granule of LDS: LLVM, AMDGPUUsage (GRANULATED_LDS_SIZE);
// from gfx1030 on Mesa, src/amd/compiler (lds_alloc_granule). Warpgroups: PTX ISA, wgmma ("requires
// sm_90a").
#include "planner/machine/gpu_arch.h"

#include "runtime/base/errors.h"

namespace cleave::planner {

namespace {

constexpr int64_t kKiB = 1024;

constexpr GpuUnit sm(int64_t shared_kib, int threads, int blocks) {
    return {
        "multiprocessor", shared_kib * kKiB, threads, blocks, 128, 0, 65536 / kPartsOfUnit, 256};
}

GpuArch nvidia(std::string_view name, int number, int64_t shared_kib, GpuUnit unit,
               bool warpgroups = false) {
    const bool is_ampere = number >= 80;  // or newer
    unit.shared_kept = is_ampere ? kKiB : 0;
    return {.name = name,
            .number = number,
            .vendor = Vendor::kNvidia,
            .warp_width = 32,
            .shared_bytes = shared_kib * kKiB,
            .registers = 65536,
            .registers_per_thread = 255,
            .max_threads = 1024,
            .matrix = is_ampere ? MatrixInstruction::kMmaSync : MatrixInstruction::kNone,
            .unit = unit,
            .warpgroups = warpgroups,
            .copies_asynchronously = is_ampere,
            .overlaps_launches = number >= 90};
}

// VGPRs of one lane, of a SIMD and in which they are given out.
constexpr GpuUnit compute_unit(int waves_of_simd, int vgprs, int granule, int64_t lds_kib = 64,
                               int64_t lds_granule = 512) {
    return {"compute unit", lds_kib * kKiB, kPartsOfUnit * waves_of_simd * 64, 16, lds_granule, 0,
            vgprs * 64,     granule * 64};
}
constexpr GpuUnit workgroup_processor(int vgprs, int granule) {
    return {"workgroup processor", 128 * kKiB, kPartsOfUnit * 16 * 32, 32, kKiB, 0, vgprs * 32,
            granule * 32};
}

GpuArch amd(std::string_view name, int number, int warp_width, int64_t registers,
            int registers_per_thread, MatrixInstruction matrix, const GpuUnit& unit) {
    return {.name = name,
            .number = number,
            .vendor = Vendor::kAmd,
            .warp_width = warp_width,
            .shared_bytes = 64 * kKiB,
            .registers = registers,
            .registers_per_thread = registers_per_thread,
            .max_threads = 1024,
            .matrix = matrix,
            .unit = unit};
}

}  // namespace

const std::vector<GpuArch>& gpu_archs() {
    using enum MatrixInstruction;
    constexpr GpuUnit kVega = compute_unit(10, 256, 4), kCdna = compute_unit(8, 512, 8);
    constexpr GpuUnit kCdna4 = compute_unit(8, 512, 8, 160, 1280);
    constexpr GpuUnit kRdna = workgroup_processor(1024, 16);
    constexpr GpuUnit kWideRdna = workgroup_processor(1536, 24);
    static const std::vector<GpuArch> kArchs = {
        nvidia("sm_70", 70, 96, sm(96, 2048, 32)),
        nvidia("sm_75", 75, 64, sm(64, 1024, 16)),
        nvidia("sm_80", 80, 163, sm(164, 2048, 32)),
        nvidia("sm_86", 86, 99, sm(100, 1536, 16)),
        nvidia("sm_87", 87, 163, sm(164, 1536, 16)),
        nvidia("sm_88", 88, 99, sm(100, 1536, 16)),
        nvidia("sm_89", 89, 99, sm(100, 1536, 24)),
        nvidia("sm_90", 90, 227, sm(228, 2048, 32)),
        nvidia("sm_90a", 90, 227, sm(228, 2048, 32), true),
        nvidia("sm_100", 100, 227, sm(228, 2048, 32)),
        nvidia("sm_103", 103, 227, sm(228, 2048, 32)),
        nvidia("sm_110", 110, 227, sm(228, 1536, 24)),
        nvidia("sm_120", 120, 99, sm(100, 1536, 24)),
        nvidia("sm_121", 121, 99, sm(100, 1536, 24)),
        amd("gfx906", 0x906, 64, 65536, 256, kNone, kVega),
        amd("gfx908", 0x908, 64, 65536, 512, kMfmaGfx908, kVega),
        amd("gfx90a", 0x90a, 64, 131072, 512, kMfmaGfx90a, kCdna),
        amd("gfx942", 0x942, 64, 131072, 512, kMfma, kCdna),
        amd("gfx950", 0x950, 64, 131072, 512, kMfma, kCdna4),
        amd("gfx1030", 0x1030, 32, 65536, 256, kNone, kRdna),
        amd("gfx1100", 0x1100, 32, 98304, 256, kWmmaGfx11, kWideRdna),
        amd("gfx1101", 0x1101, 32, 98304, 256, kWmmaGfx11, kWideRdna),
        amd("gfx1102", 0x1102, 32, 65536, 256, kWmmaGfx11, kRdna),
        amd("gfx1200", 0x1200, 32, 98304, 256, kWmmaGfx12, kWideRdna),
        amd("gfx1201", 0x1201, 32, 98304, 256, kWmmaGfx12, kWideRdna),
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
