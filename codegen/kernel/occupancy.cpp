// SPDX-License-Identifier: Apache-2.0
#include "codegen/kernel/occupancy.h"
#include "runtime/base/rounding.h"

#include <algorithm>

#include <fmt/format.h>

namespace cleave::codegen {

Occupancy predict_occupancy(const GpuArch& arch, int64_t threads, int64_t shared_bytes,
                            int64_t registers) {
    using planner::kPartsOfUnit;
    const planner::GpuUnit& unit = arch.unit;
    Occupancy o;
    o.most_warps = unit.threads / arch.warp_width;
    const int64_t warps = (threads + arch.warp_width - 1) / arch.warp_width;
    if (warps == 0 || threads > arch.max_threads || shared_bytes > arch.shared_bytes ||
        registers > arch.registers_per_thread)
        return o;
    o.blocks = o.most_warps / warps;
    const planner::VendorFacts& vendor = planner::vendor_facts(arch.vendor);
    if (vendor.counts_small_blocks || warps > 1)
        o.blocks = std::min<int64_t>(o.blocks, unit.blocks);
    const int64_t shared = round_up(shared_bytes + unit.shared_kept, unit.shared_granule);
    if (shared > 0) o.blocks = std::min(o.blocks, unit.shared_bytes / shared);
    if (registers > 0) {
        const int64_t given = round_up(registers * arch.warp_width, unit.register_granule);
        const int64_t resident = kPartsOfUnit * (unit.registers_of_part / given);
        o.blocks = std::min(o.blocks, resident / warps);
        // Such launches are checked as if each part got as many warps as any.
        if (vendor.registers_of_block && given * round_up(warps, kPartsOfUnit) > arch.registers)
            o.blocks = 0;
    }
    o.warps = o.blocks * warps;
    return o;
}

std::string_view unit_name(const GpuArch& arch) { return arch.unit.name; }

bool multiplies_matrices_of(const GpuArch& arch, DType staged) {
    using enum MatrixInstruction;
    if (staged == DType::kF16 || staged == DType::kBF16) return arch.matrix != kNone;
    return staged == DType::kF32 &&
           (arch.matrix == kMfma || arch.matrix == kMfmaGfx908 || arch.matrix == kMfmaGfx90a);
}

std::string_view simt_arch_of(std::string_view program_arch) {
    return program_arch.starts_with(kSimtPrefix) ? program_arch.substr(kSimtPrefix.size())
                                                 : std::string_view();
}

std::string_view gpu_arch_of(std::string_view program_arch) {
    const std::string_view imitated = simt_arch_of(program_arch);
    return imitated.empty() ? program_arch : imitated;
}

std::vector<std::string> arch_defines(const GpuArch& arch) {
    std::vector<std::string> defines = {
        fmt::format(fmt::runtime(planner::vendor_facts(arch.vendor).arch_macro), arch.number)};
    if (arch.warpgroups) defines.emplace_back("CLEAVE_WGMMA=1");
    return defines;
}

}  // namespace cleave::codegen
