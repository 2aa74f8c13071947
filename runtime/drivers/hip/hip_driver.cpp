// SPDX-License-Identifier: Apache-2.0
#include "runtime/drivers/hip/hip_driver.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "runtime/base/dynamic_library.h"
#include "runtime/base/errors.h"
#include "runtime/drivers/gpu/driver_switches.h"
#include "runtime/drivers/hip/symbols.h"

namespace cleave::runtime {

namespace {

using namespace hip;

struct HipLibrary {
    // Never closed: its threads and exit handlers run on after the last context.
    explicit HipLibrary(DynamicLibrary opened) : library(kept_open(std::move(opened))) {}

    // The first symbol that is missing, or null.
    const char* resolve() {
#define CLEAVE_RESOLVE(name, parameters)                                      \
    call.name = reinterpret_cast<decltype(call.name)>(library.symbol(#name)); \
    if (!call.name) return #name;
        CLEAVE_HIP_FUNCTIONS(CLEAVE_RESOLVE)
#undef CLEAVE_RESOLVE
#define CLEAVE_TAKE(name, parameters) take(call.name, #name);
        CLEAVE_HIP_POOL_FUNCTIONS(CLEAVE_TAKE)
#undef CLEAVE_TAKE
        take(call.hipGetErrorName, "hipGetErrorName");
        take(call.hipGetErrorString, "hipGetErrorString");
        take(call.hipDeviceGetUuid, "hipDeviceGetUuid");
        take(call.hipGraphUpload, "hipGraphUpload");
        take(call.properties, "hipGetDevicePropertiesR0600");
        if (!call.properties) take(call.properties, "hipGetDeviceProperties");
        if (!call.hipGetErrorName || !call.hipGetErrorString) return "hipGetErrorName";
        return call.properties ? nullptr : "hipGetDeviceProperties";
    }

    bool has_pools() const {
        return use_pools && call.hipMemPoolCreate && call.hipMemPoolDestroy &&
               call.hipMemPoolSetAccess && call.hipMallocFromPoolAsync;
    }

    std::string error(hipError_t code) const {
        return vendor_error(call.hipGetErrorName(code), call.hipGetErrorString(code), code);
    }

    void check(hipError_t code, const char* function, const std::string& device) const {
        if (code != hipSuccess) throw VendorError(function, error(code), device);
    }

    DynamicLibrary& library;
    hip::Functions call;
    bool use_pools = wants_hip_pools();

private:
    template <class Function>
    void take(Function& function, const char* name) {
        function = reinterpret_cast<Function>(library.symbol(name));
    }
};

#define CLEAVE_HIP(function, ...) lib_->check(lib_->call.function(__VA_ARGS__), #function, name_)

class HipContext final : public GpuContext {
public:
    HipContext(std::shared_ptr<const HipLibrary> lib, int device, std::string name)
        : lib_(std::move(lib)), device_(device), name_(std::move(name)) {
        use();
        CLEAVE_HIP(hipStreamCreateWithFlags, &stream_, kStreamNonBlocking);
    }
    // After a fault every call fails: then the device is reset, which gives back all that this
    // process has there.
    ~HipContext() override {
        lib_->call.hipSetDevice(device_);
        if (pool_) lib_->call.hipMemPoolDestroy(pool_);
        if (lib_->call.hipStreamDestroy(stream_) != hipSuccess) lib_->call.hipDeviceReset();
    }
    HipContext(const HipContext&) = delete;
    HipContext& operator=(const HipContext&) = delete;

    // Of the context's own pool, where pools are asked for, and runtime and card have them. Its
    // release threshold stays 0: what is freed goes back at the next wait, all of it with the pool.
    std::optional<DeviceAddress> allocate(int64_t bytes) override {
        const hipMemPool_t from = pool();
        void* address = nullptr;
        const auto size = static_cast<size_t>(bytes);
        const hipError_t code =
            from ? lib_->call.hipMallocFromPoolAsync(&address, size, from, stream_)
                 : lib_->call.hipMalloc(&address, size);
        if (code == hipErrorOutOfMemory) return std::nullopt;
        lib_->check(code, from ? "hipMallocFromPoolAsync" : "hipMalloc", name_);
        return reinterpret_cast<DeviceAddress>(address);
    }
    // Stores to coarse-grained memory may reach other devices at the end of a kernel only (HIP,
    // "coherency control").
    std::optional<DeviceAddress> allocate_exchange(int64_t bytes) override {
        use();
        void* address = nullptr;
        const hipError_t code = lib_->call.hipExtMallocWithFlags(
            &address, static_cast<size_t>(bytes), kMallocFinegrained);
        if (code == hipErrorOutOfMemory) return std::nullopt;
        lib_->check(code, "hipExtMallocWithFlags", name_);
        return reinterpret_cast<DeviceAddress>(address);
    }
    void enable_peer_access(GpuContext& peer) override {
        auto& other = static_cast<HipContext&>(peer);
        const std::string both = peers_text(name_, other.name_);
        const hipMemPool_t theirs = other.pool();  // which the call below does not open
        use();
        const hipError_t code = lib_->call.hipDeviceEnablePeerAccess(other.device_, 0);
        if (code != hipErrorPeerAccessAlreadyEnabled)
            lib_->check(code, "hipDeviceEnablePeerAccess", both);
        const hipMemAccessDesc access{{hipMemLocationTypeDevice, device_},
                                      hipMemAccessFlagsProtReadWrite};
        if (theirs)
            lib_->check(lib_->call.hipMemPoolSetAccess(theirs, &access, 1), "hipMemPoolSetAccess",
                        both);
    }
    // Also of memory of the pool; who calls it has waited for the stream.
    void free(DeviceAddress address) override {
        use();
        CLEAVE_HIP(hipFree, pointer(address));
    }
    int64_t free_bytes() override {
        use();
        size_t free = 0, total = 0;
        CLEAVE_HIP(hipMemGetInfo, &free, &total);
        return static_cast<int64_t>(free);
    }

    std::byte* allocate_pinned(int64_t bytes) override {
        use();
        void* memory = nullptr;
        // Coherent, as signals between host and kernels need: the default is only while
        // HIP_HOST_COHERENT says nothing else; and every device's (HIP Programming Guide, "Host
        // Memory").
        const hipError_t code =
            lib_->call.hipHostMalloc(&memory, static_cast<size_t>(bytes),
                                     kHostMallocCoherent | kHostMallocMapped | kHostMallocPortable);
        if (code == hipErrorOutOfMemory) return nullptr;
        lib_->check(code, "hipHostMalloc", name_);
        return static_cast<std::byte*>(memory);
    }
    void free_pinned(std::byte* memory) override {
        use();
        CLEAVE_HIP(hipHostFree, memory);
    }

    void fill(DeviceAddress address, int64_t bytes, uint8_t value) override {
        use();
        CLEAVE_HIP(hipMemsetAsync, pointer(address), value, static_cast<size_t>(bytes), stream_);
    }
    void copy_out(DeviceAddress source, std::byte* destination, const Rectangle& r) override {
        copy(destination, pointer(source), r, hipMemcpyDeviceToHost);
    }
    void copy_in(const std::byte* source, DeviceAddress destination, const Rectangle& r) override {
        copy(pointer(destination), source, r, hipMemcpyHostToDevice);
    }
    void copy_within(DeviceAddress source, DeviceAddress destination, const Rectangle& r) override {
        copy(pointer(destination), pointer(source), r, hipMemcpyDeviceToDevice);
    }

    void launch(GpuFunction function, const std::array<unsigned, 3>& grid,
                const std::array<unsigned, 3>& block, unsigned shared_bytes, void** args,
                bool) override {
        use();
        CLEAVE_HIP(hipModuleLaunchKernel, static_cast<hipFunction_t>(function), grid[0], grid[1],
                   grid[2], block[0], block[1], block[2], shared_bytes, stream_, args, nullptr);
    }
    bool is_idle() override {
        use();
        return is_ready(lib_->call.hipStreamQuery(stream_), "hipStreamQuery");
    }

    GpuEvent make_event(bool timed) override {
        use();
        hipEvent_t event = nullptr;
        CLEAVE_HIP(hipEventCreateWithFlags, &event, timed ? 0 : kEventDisableTiming);
        return event;
    }
    void destroy_event(GpuEvent event) override {
        use();
        CLEAVE_HIP(hipEventDestroy, static_cast<hipEvent_t>(event));
    }
    void record(GpuEvent event) override {
        use();
        CLEAVE_HIP(hipEventRecord, static_cast<hipEvent_t>(event), stream_);
    }
    bool has_passed(GpuEvent event) override {
        use();
        return is_ready(lib_->call.hipEventQuery(static_cast<hipEvent_t>(event)), "hipEventQuery");
    }
    double elapsed_ms(GpuEvent from, GpuEvent to) override {
        use();
        float ms = 0;
        CLEAVE_HIP(hipEventElapsedTime, &ms, static_cast<hipEvent_t>(from),
                   static_cast<hipEvent_t>(to));
        return ms;
    }

    void begin_capture() override {
        use();
        CLEAVE_HIP(hipStreamBeginCapture, stream_, hipStreamCaptureModeThreadLocal);
    }
    GpuGraph end_capture() override {
        use();
        hipGraph_t graph = nullptr;
        CLEAVE_HIP(hipStreamEndCapture, stream_, &graph);
        hipGraphExec_t exec = nullptr;
        const hipError_t code = lib_->call.hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0);
        lib_->call.hipGraphDestroy(graph);
        lib_->check(code, "hipGraphInstantiate", name_);
        return exec;
    }
    void abandon_capture() noexcept override {
        lib_->call.hipSetDevice(device_);
        hipGraph_t graph = nullptr;
        lib_->call.hipStreamEndCapture(stream_, &graph);
        if (graph) lib_->call.hipGraphDestroy(graph);
    }
    void bring(GpuGraph graph) override {
        use();
        if (lib_->call.hipGraphUpload)
            CLEAVE_HIP(hipGraphUpload, static_cast<hipGraphExec_t>(graph), stream_);
    }
    void replay(GpuGraph graph) override {
        use();
        CLEAVE_HIP(hipGraphLaunch, static_cast<hipGraphExec_t>(graph), stream_);
    }
    void destroy_graph(GpuGraph graph) override {
        use();
        CLEAVE_HIP(hipGraphExecDestroy, static_cast<hipGraphExec_t>(graph));
    }

    void make_current() override { use(); }
    void* native_stream() override { return stream_; }

    GpuModule load(std::span<const std::byte> object) override {
        use();
        hipModule_t module = nullptr;
        const hipError_t code = lib_->call.hipModuleLoadData(&module, object.data());
        if (code == hipErrorInvalidImage || code == hipErrorNoBinaryForGpu)
            throw RefusedObject("hipModuleLoadData", lib_->error(code), name_);
        lib_->check(code, "hipModuleLoadData", name_);
        return module;
    }
    void unload(GpuModule module) override {
        use();
        CLEAVE_HIP(hipModuleUnload, static_cast<hipModule_t>(module));
    }
    GpuFunction function(GpuModule module, const std::string& name) override {
        use();
        hipFunction_t function = nullptr;
        CLEAVE_HIP(hipModuleGetFunction, &function, static_cast<hipModule_t>(module), name.c_str());
        return function;
    }
    int64_t most_threads(GpuFunction function) override {
        use();
        int threads = 0;
        CLEAVE_HIP(hipFuncGetAttribute, &threads, HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                   static_cast<hipFunction_t>(function));
        return threads;
    }

private:
    static void* pointer(DeviceAddress address) { return reinterpret_cast<void*>(address); }

    void use() { CLEAVE_HIP(hipSetDevice, device_); }

    // Made when it is first asked for; null where there are none.
    hipMemPool_t pool() {
        use();
        int has_pools = 0;
        if (pool_ || !lib_->has_pools()) return pool_;
        CLEAVE_HIP(hipDeviceGetAttribute, &has_pools, hipDeviceAttributeMemoryPoolsSupported,
                   device_);
        hipMemPoolProps properties{};
        properties.allocType = hipMemAllocationTypePinned;
        properties.location = {hipMemLocationTypeDevice, device_};
        if (has_pools) CLEAVE_HIP(hipMemPoolCreate, &pool_, &properties);
        return pool_;
    }

    bool is_ready(hipError_t code, const char* function) const {
        if (code == hipErrorNotReady) return false;
        lib_->check(code, function, name_);
        return true;
    }

    void copy(void* destination, const void* source, const Rectangle& r, hipMemcpyKind kind) {
        if (r.rows <= 0 || r.row_bytes <= 0) return;
        use();
        if (r.rows == 1) {
            CLEAVE_HIP(hipMemcpyAsync, destination, source, static_cast<size_t>(r.row_bytes), kind,
                       stream_);
            return;
        }
        CLEAVE_HIP(hipMemcpy2DAsync, destination,
                   static_cast<size_t>(std::max(r.destination_stride, r.row_bytes)), source,
                   static_cast<size_t>(std::max(r.source_stride, r.row_bytes)),
                   static_cast<size_t>(r.row_bytes), static_cast<size_t>(r.rows), kind, stream_);
    }

    std::shared_ptr<const HipLibrary> lib_;
    int device_;
    std::string name_;
    hipStream_t stream_ = nullptr;
    hipMemPool_t pool_ = nullptr;
};

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

// Transfers of a pin in a clock as the driver counts it. HBM2 has two, HBM3 of MI300 four, as its
// 1300 MHz and 8192 bits make the 5.3 TB/s of its data sheet; GDDR6 of RDNA's cards has sixteen, as
// 1250 MHz and 384 bits make the 960 GB/s of a 7900 XTX.
int64_t transfers_per_clock(const std::string& arch) {
    if (arch == "gfx942") return 4;
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
        int timer_khz = 0;  // which not every version tells
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
        return std::make_unique<HipContext>(lib_, ordinal, name);
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
    ::setenv(kHipQueues, "16", 0);
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
