// SPDX-License-Identifier: Apache-2.0
#include "runtime/drivers/hip/hip_driver.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include "planner/machine/vendor.h"
#include "runtime/base/dynamic_library.h"
#include "runtime/base/errors.h"
#include "runtime/drivers/hip/hip_context.h"

namespace cleave::runtime {

namespace {

using namespace hip;

#define CLEAVE_HIP(function, ...) lib_->check(lib_->call.function(__VA_ARGS__), #function, name_)

// "gfx90a" of "...gfx90a:sramecc+:xnack-..." anywhere in a struct whose layout differs between
// versions.
std::string arch_in(std::string_view properties) {
    const size_t at = properties.find("gfx");
    if (at == std::string_view::npos) return "";
    size_t end = at;
    while (end < properties.size() && std::isalnum(static_cast<unsigned char>(properties[end])))
        ++end;
    return std::string(properties.substr(at, end - at));
}

// Transfers of a pin in a clock as the driver counts it. HBM2 has two, HBM3 of MI300 and MI350
// four, as its 1300 MHz and 8192 bits make the 5.3 TB/s of its data sheet; GDDR6 of RDNA's cards
// has sixteen, as 1250 MHz and 384 bits make the 960 GB/s of a 7900 XTX.
int64_t transfers_per_clock(const std::string& arch) {
    if (arch == "gfx942" || arch == "gfx950") return 4;
    return arch.starts_with("gfx1") ? 16 : 2;
}

class HipDriver final : public GpuDriver {
public:
    HipDriver(std::shared_ptr<const HipLibrary> lib, int count)
        : lib_(std::move(lib)), count_(count) {}

    planner::DeviceKind kind() const override { return planner::DeviceKind::kHip; }
    const std::string& library() const override { return lib_->library.name(); }
    // Major * 10^7 + minor * 10^5 + patch (HIP_VERSION).
    std::string version() const override {
        int version = 0;
        CLEAVE_HIP(hipRuntimeGetVersion, &version);
        return fmt::format("{}.{}", version / 10'000'000, version / 100'000 % 100);
    }
    int count() const override { return count_; }

    GpuFacts facts(int ordinal) const override {
        GpuFacts facts;
        char text[256] = {};
        CLEAVE_HIP(hipDeviceGetName, text, sizeof text, ordinal);
        facts.name = text;
        CLEAVE_HIP(hipDeviceGetPCIBusId, text, sizeof text, ordinal);
        facts.pci = lower_case(text);
        // As AMD's tools print it: the sixteen digits that the bytes are. Of a card without one
        // they are "XX" and nothing (hsa_ext_amd.h, HSA_AMD_AGENT_INFO_UUID).
        hipUUID uuid{};
        if (lib_->call.hipDeviceGetUuid &&
            lib_->call.hipDeviceGetUuid(&uuid, ordinal) == hipSuccess &&
            std::all_of(std::begin(uuid.bytes), std::end(uuid.bytes),
                        [](char c) { return std::isxdigit(static_cast<unsigned char>(c)); }))
            facts.uuid = "GPU-" + std::string(uuid.bytes, sizeof uuid.bytes);
        size_t bytes = 0;
        CLEAVE_HIP(hipDeviceTotalMem, &bytes, ordinal);
        facts.memory_bytes = static_cast<int64_t>(bytes);
        std::vector<char> properties(8192);
        CLEAVE_HIP(properties, properties.data(), ordinal);
        facts.arch = arch_in({properties.data(), properties.size()});
        const auto attribute = [&](hipDeviceAttribute_t which) {
            int value = 0;
            CLEAVE_HIP(hipDeviceGetAttribute, &value, which, ordinal);
            return static_cast<int64_t>(value);
        };
        facts.memory_bandwidth = transfers_per_clock(facts.arch) * 1000 *
                                 attribute(hipDeviceAttributeMemoryClockRate) *
                                 (attribute(hipDeviceAttributeMemoryBusWidth) / 8);
        facts.clock_hz = 1000 * attribute(hipDeviceAttributeClockRate);
        int timer_khz = 0;  // not every version has it
        if (lib_->call.hipDeviceGetAttribute(&timer_khz, kWallClockRate, ordinal) == hipSuccess)
            facts.timer_hz = int64_t{1000} * timer_khz;
        facts.limits = {
            attribute(hipDeviceAttributeMaxSharedMemoryPerBlock),
            attribute(hipDeviceAttributeMaxRegistersPerBlock),
            attribute(hipDeviceAttributeMaxThreadsPerBlock),
            attribute(hipDeviceAttributeWarpSize),
            attribute(hipDeviceAttributeMultiprocessorCount),
            {attribute(hipDeviceAttributeMaxGridDimX), attribute(hipDeviceAttributeMaxGridDimY),
             attribute(hipDeviceAttributeMaxGridDimZ)}};
        // A launch has fewer than 2^32 threads along each axis (hip_runtime_api.h,
        // hipModuleLaunchKernel); blocks of more than one thread in y and z nobody makes.
        if (const int64_t threads = facts.limits.max_threads_per_block; threads > 0)
            facts.limits.max_grid[0] =
                std::min(facts.limits.max_grid[0], ((int64_t{1} << 32) - 1) / threads);
        return facts;
    }

    bool has_peer_access(int from, int to) const override {
        int can = 0;
        CLEAVE_HIP(hipDeviceCanAccessPeer, &can, from, to);
        return can != 0;
    }

    std::unique_ptr<GpuContext> open(int ordinal, const std::string& name) override {
        return open_hip_context(lib_, ordinal, name);
    }

private:
    std::shared_ptr<const HipLibrary> lib_;
    std::string name_ = "the HIP runtime";  // in messages
    int count_;
};

#undef CLEAVE_HIP

}  // namespace

std::vector<std::string> hip_library_names() {
    static const std::string kNames[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
                                         "libamdhip64.so"};
    return rocm_library_names(kNames);
}

FoundDriver open_hip_driver(std::span<const std::string> names) {
    std::string why;
    std::optional<DynamicLibrary> opened = DynamicLibrary::open_first(names, &why);
    if (!opened) return {nullptr, why};
    auto lib = std::make_shared<HipLibrary>(std::move(*opened));
    if (const char* missing = lib->resolve())
        return {nullptr, fmt::format("{} lacks {}: HIP of ROCm 5 or newer is needed",
                                     lib->library.name(), missing)};
    // A hardware queue for each stream of a card's logical devices, unless the user says how many.
    // Of the default 4 some streams would share one. A queue runs in order, so that kernels which
    // wait for one another would not end.
    ::setenv(planner::vendor_facts(planner::Vendor::kAmd).queues_variable, "16", 0);
    int count = 0;
    hipError_t code = lib->call.hipInit(0);
    if (code == hipSuccess) code = lib->call.hipGetDeviceCount(&count);
    if (code == hipErrorNoDevice || code == hipErrorInvalidDevice)
        return {nullptr,
                fmt::format("{} shows no device: {}", lib->library.name(), lib->error(code))};
    if (code != hipSuccess)
        return {nullptr, fmt::format("{}: {}", lib->library.name(), lib->error(code))};
    if (count == 0) return {nullptr, fmt::format("{} shows no device", lib->library.name())};
    return {std::make_shared<HipDriver>(lib, count), ""};
}

}  // namespace cleave::runtime
