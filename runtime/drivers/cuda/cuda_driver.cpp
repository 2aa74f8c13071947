// SPDX-License-Identifier: Apache-2.0
#include "runtime/drivers/cuda/cuda_driver.h"

#include <cstdlib>

#include "planner/machine/gpu_arch.h"
#include "planner/machine/vendor.h"
#include "runtime/base/dynamic_library.h"
#include "runtime/base/errors.h"
#include "runtime/drivers/cuda/cuda_context.h"

namespace cleave::runtime {

namespace {

using namespace cuda;

#define CLEAVE_CUDA(function, ...) lib_->check(lib_->call.function(__VA_ARGS__), #function, name_)

class CudaDriver final : public GpuDriver {
public:
    explicit CudaDriver(std::shared_ptr<const CudaLibrary> lib) : lib_(std::move(lib)) {
        CLEAVE_CUDA(cuDeviceGetCount, &count_);
    }

    planner::DeviceKind kind() const override { return planner::DeviceKind::kCuda; }
    const std::string& library() const override { return lib_->library.name(); }
    std::string version() const override {
        int version = 0;
        CLEAVE_CUDA(cuDriverGetVersion, &version);
        return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
    }
    int count() const override { return count_; }

    GpuFacts facts(int ordinal) const override {
        const CUdevice device = handle(ordinal);
        GpuFacts facts;
        char text[256] = {};
        CLEAVE_CUDA(cuDeviceGetName, text, sizeof text, device);
        facts.name = text;
        CLEAVE_CUDA(cuDeviceGetPCIBusId, text, sizeof text, device);
        facts.pci = lower_case(text);
        CUuuid uuid{};
        CLEAVE_CUDA(cuDeviceGetUuid_v2, &uuid, device);
        // Of a part of a card (MIG) it is the part's own, which the vendor's tools print so.
        facts.uuid = facts.name.find(" MIG ") == std::string::npos ? "GPU-" : "MIG-";
        for (size_t i = 0; i < sizeof uuid.bytes; ++i)
            facts.uuid += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                                      static_cast<unsigned char>(uuid.bytes[i]));
        size_t bytes = 0;
        CLEAVE_CUDA(cuDeviceTotalMem_v2, &bytes, device);
        facts.memory_bytes = static_cast<int64_t>(bytes);
        const auto attribute = [&](CUdevice_attribute which) {
            int value = 0;
            CLEAVE_CUDA(cuDeviceGetAttribute, &value, which, device);
            return static_cast<int64_t>(value);
        };
        const auto capability = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                                attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
        facts.arch = fmt::format("sm_{}", capability);
        // Where an architecture has features of its own, kernels are made for those.
        if (planner::find_gpu_arch(facts.arch + "a")) facts.arch += "a";
        // Two transfers a clock: double data rate, as the toolkit's deviceQuery computes it.
        facts.memory_bandwidth = 2 * 1000 * attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) *
                                 (attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) / 8);
        facts.clock_hz = 1000 * attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
        facts.limits = {attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
                        attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
                        attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
                        attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE),
                        attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
                        {attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
                         attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
                         attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)}};
        return facts;
    }

    bool has_peer_access(int from, int to) const override {
        int can = 0;
        CLEAVE_CUDA(cuDeviceCanAccessPeer, &can, handle(from), handle(to));
        return can != 0;
    }

    std::unique_ptr<GpuContext> open(int ordinal, const std::string& name) override {
        return open_cuda_context(lib_, handle(ordinal), name);
    }

private:
    CUdevice handle(int ordinal) const {
        CUdevice device = 0;
        CLEAVE_CUDA(cuDeviceGet, &device, ordinal);
        return device;
    }

    std::shared_ptr<const CudaLibrary> lib_;
    std::string name_ = "the CUDA driver";  // in messages
    int count_ = 0;
};

#undef CLEAVE_CUDA

}  // namespace

std::span<const std::string> cuda_library_names() {
    static const std::string kNames[] = {"libcuda.so.1", "libcuda.so"};
    return kNames;
}

FoundDriver open_cuda_driver(std::span<const std::string> names) {
    std::string why;
    std::optional<DynamicLibrary> opened = DynamicLibrary::open_first(names, &why);
    if (!opened) return {nullptr, why};
    auto lib = std::make_shared<CudaLibrary>(std::move(*opened));
    if (const char* missing = lib->resolve())
        return {nullptr, fmt::format("{} lacks {}: a driver of CUDA 11.4 or newer is needed",
                                     lib->library.name(), missing)};
    // Kernels are loaded with their module, not at their first launch: loading may wait for what
    // runs in the context, and a peer's kernel there may wait for this very launch (CUDA C++
    // Programming Guide, "Lazy loading"). The user's word counts.
    ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    // A queue for each stream of a card's logical devices, unless the user says how many. Of the
    // default 8 some streams would share one (CUDA C++ Programming Guide, "CUDA Environment
    // Variables"). A queue runs in order, so that kernels which wait for one another would not end.
    ::setenv(planner::vendor_facts(planner::Vendor::kNvidia).queues_variable, "32", 0);
    if (const CUresult code = lib->call.cuInit(0); code != CUDA_SUCCESS)
        return {nullptr, fmt::format("{}: cuInit: {}", lib->library.name(), lib->error(code))};
    auto driver = std::make_shared<CudaDriver>(lib);
    if (driver->count() == 0)
        return {nullptr, fmt::format("{} shows no device", lib->library.name())};
    return {driver, ""};
}

}  // namespace cleave::runtime
