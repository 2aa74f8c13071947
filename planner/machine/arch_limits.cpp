// SPDX-License-Identifier: Apache-2.0
#include "planner/machine/arch_limits.h"

#include <cstdint>

#include "planner/machine/catalogue.h"
#include "planner/machine/gpu_arch.h"
#include "planner/machine/vendor.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

constexpr int64_t kAny = INT32_MAX;  // devices count in 32 bits
constexpr int64_t kMostUnits = int64_t{1} << 16;

struct Check {
    const DeviceInfo& device;
    const std::string& where;

    [[noreturn]] void refuse(const char* field, int64_t value, const std::string& supported) const {
        throw UserError(
            "{}.{} of {} is {}; {} supports {}", where, field, device.name, value,
            device.arch.empty() ? device_kind_name(device.kind) : std::string_view(device.arch),
            supported);
    }
    void range(const char* field, int64_t value, int64_t least, int64_t most) const {
        if (value < least || value > most)
            refuse(field, value, fmt::format("{} to {}", least, most));
    }
};

}  // namespace

DeviceLimits default_limits(DeviceKind kind, const std::string& arch) {
    if (const GpuArch* known = find_gpu_arch(arch)) return limits_of(*known);
    return {64 << 10, 65536, 1024, kind == DeviceKind::kHost ? 1 : 32, 1};
}

void check_device_limits(const DeviceInfo& device, const std::string& where) {
    const DeviceLimits& limits = device.limits;
    const Check check{device, where};
    const GpuArch* arch = find_gpu_arch(device.arch);
    check.range("num_compute_units", limits.num_compute_units, 1, kMostUnits);
    if (device.is_numa_node()) {
        if (device.kind != DeviceKind::kHost)
            check.refuse("host_cores", device.host_cores, "0, as it is no host device");
        check.range("host_cores", device.host_cores, limits.num_compute_units, kMostUnits);
    }
    constexpr const char* kMaxGrid[] = {"max_grid_x", "max_grid_y", "max_grid_z"};
    for (size_t axis = 0; axis < 3; ++axis)
        check.range(kMaxGrid[axis], limits.max_grid[axis], 1, kAny);
    if (device.kind == DeviceKind::kHost || (!arch && limits.warp_width == 1)) {
        if (limits.warp_width != 1) check.refuse("warp_width", limits.warp_width, "1");
        return;  // kernels of hosts have no blocks
    }
    if (arch && limits.warp_width != arch->warp_width)
        check.refuse("warp_width", limits.warp_width, std::to_string(arch->warp_width));
    if (limits.warp_width != 32 && limits.warp_width != 64)
        check.refuse("warp_width", limits.warp_width, "32 and 64, and of a CPU 1");
    check.range("shared_memory_per_block", limits.shared_memory_per_block, 1,
                arch ? arch->shared_bytes : kAny);
    check.range("max_threads_per_block", limits.max_threads_per_block, limits.warp_width,
                arch ? arch->max_threads : kAny);
    // Drivers that do not count those of a block say different numbers from version to version.
    const VendorFacts* card = vendor_of(device.kind);
    check.range("registers_per_block", limits.registers_per_block, 1,
                arch && (!card || card->registers_of_block) ? arch->registers : kAny);
}

}  // namespace cleave::planner
