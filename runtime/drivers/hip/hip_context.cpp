// SPDX-License-Identifier: Apache-2.0
#include "runtime/drivers/hip/hip_context.h"

#include <algorithm>

#include "runtime/base/errors.h"

namespace cleave::runtime {

namespace {

using namespace hip;

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

#undef CLEAVE_HIP

}  // namespace

std::unique_ptr<GpuContext> open_hip_context(std::shared_ptr<const HipLibrary> library, int device,
                                             std::string name) {
    return std::make_unique<HipContext>(std::move(library), device, std::move(name));
}

}  // namespace cleave::runtime
