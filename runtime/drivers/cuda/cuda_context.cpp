// SPDX-License-Identifier: Apache-2.0
#include "runtime/drivers/cuda/cuda_context.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace cleave::runtime {

namespace {

using namespace cuda;

#define CLEAVE_CUDA(function, ...) lib_->check(lib_->call.function(__VA_ARGS__), #function, name_)

class CudaContext final : public GpuContext {
public:
    CudaContext(std::shared_ptr<const CudaLibrary> lib, CUdevice device, std::string name)
        : lib_(std::move(lib)), device_(device), name_(std::move(name)) {
        if (const CUresult code = lib_->call.cuDevicePrimaryCtxRetain(&context_, device_);
            code != CUDA_SUCCESS)
            throw VendorError("cuDevicePrimaryCtxRetain", lib_->error(code) + closed(), name_);
        try {
            use();
            CLEAVE_CUDA(cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING);
        } catch (...) {
            lib_->call.cuDevicePrimaryCtxRelease_v2(device_);
            throw;
        }
    }
    // After a fault every call fails; what can be given back is.
    ~CudaContext() override {
        lib_->call.cuCtxSetCurrent(context_);
        if (pool_) lib_->call.cuMemPoolDestroy(pool_);
        lib_->call.cuStreamDestroy_v2(stream_);
        lib_->call.cuDevicePrimaryCtxRelease_v2(device_);
    }
    CudaContext(const CudaContext&) = delete;
    CudaContext& operator=(const CudaContext&) = delete;

    // Of the context's own pool, where the card has pools. Its release threshold stays 0, but what
    // is freed goes back only in calls that block (cuStreamSynchronize and its like), of which
    // there are none here: the pool keeps it for the next allocation, and gives all back when it
    // goes.
    std::optional<DeviceAddress> allocate(int64_t bytes) override {
        const CUmemoryPool from = pool();
        if (!from) return allocate_exchange(bytes);
        CUdeviceptr address = 0;
        const CUresult code =
            lib_->call.cuMemAllocFromPoolAsync(&address, static_cast<size_t>(bytes), from, stream_);
        return made(address, code, "cuMemAllocFromPoolAsync");
    }
    // Plain memory: what cuCtxEnablePeerAccess opens to peers, and what their signals are known to
    // reach.
    std::optional<DeviceAddress> allocate_exchange(int64_t bytes) override {
        use();
        CUdeviceptr address = 0;
        const CUresult code = lib_->call.cuMemAlloc_v2(&address, static_cast<size_t>(bytes));
        return made(address, code, "cuMemAlloc_v2");
    }
    // Also of memory of the pool, for which it waits for nobody: who calls it has waited for the
    // stream.
    void free(DeviceAddress address) override {
        use();
        CLEAVE_CUDA(cuMemFree_v2, address);
    }
    int64_t free_bytes() override {
        use();
        size_t free = 0, total = 0;
        CLEAVE_CUDA(cuMemGetInfo_v2, &free, &total);
        return static_cast<int64_t>(free);
    }

    // Primary contexts outlive a session: another may have enabled it before.
    void enable_peer_access(GpuContext& peer) override {
        auto& other = static_cast<CudaContext&>(peer);
        const std::string both = peers_text(name_, other.name_);
        const CUmemoryPool theirs = other.pool();  // which the call below does not open
        use();
        const CUresult code = lib_->call.cuCtxEnablePeerAccess(other.context_, 0);
        if (code != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
            lib_->check(code, "cuCtxEnablePeerAccess", both);
        const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, device_},
                                     CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        if (theirs)
            lib_->check(lib_->call.cuMemPoolSetAccess(theirs, &access, 1), "cuMemPoolSetAccess",
                        both);
    }

    std::byte* allocate_pinned(int64_t bytes) override {
        use();
        void* memory = nullptr;
        const CUresult code =
            lib_->call.cuMemHostAlloc(&memory, static_cast<size_t>(bytes), kHostAllocPortable);
        if (code == CUDA_ERROR_OUT_OF_MEMORY) return nullptr;
        lib_->check(code, "cuMemHostAlloc", name_);
        return static_cast<std::byte*>(memory);
    }
    void free_pinned(std::byte* memory) override {
        use();
        CLEAVE_CUDA(cuMemFreeHost, memory);
    }

    void fill(DeviceAddress address, int64_t bytes, uint8_t value) override {
        use();
        CLEAVE_CUDA(cuMemsetD8Async, address, value, static_cast<size_t>(bytes), stream_);
    }
    void copy_out(DeviceAddress source, std::byte* destination, const Rectangle& r) override {
        if (r.rows == 1 && r.row_bytes > 0) {
            use();
            CLEAVE_CUDA(cuMemcpyDtoHAsync_v2, destination, source, static_cast<size_t>(r.row_bytes),
                        stream_);
            return;
        }
        CUDA_MEMCPY2D copy{};
        copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.srcDevice = source;
        copy.dstMemoryType = CU_MEMORYTYPE_HOST;
        copy.dstHost = destination;
        start(copy, r);
    }
    void copy_in(const std::byte* source, DeviceAddress destination, const Rectangle& r) override {
        if (r.rows == 1 && r.row_bytes > 0) {
            use();
            CLEAVE_CUDA(cuMemcpyHtoDAsync_v2, destination, source, static_cast<size_t>(r.row_bytes),
                        stream_);
            return;
        }
        CUDA_MEMCPY2D copy{};
        copy.srcMemoryType = CU_MEMORYTYPE_HOST;
        copy.srcHost = source;
        copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.dstDevice = destination;
        start(copy, r);
    }
    // One copy where the driver takes the pitches: of those that it did not choose itself it may
    // refuse any (cuMemcpy2DAsync, "intra-device memory copies"); then row by row.
    void copy_within(DeviceAddress source, DeviceAddress destination, const Rectangle& r) override {
        if (r.rows <= 0 || r.row_bytes <= 0) return;
        if (r.rows > 1) {
            CUDA_MEMCPY2D copy{};
            copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
            copy.srcDevice = source;
            copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
            copy.dstDevice = destination;
            const CUresult code = pitched(copy, r);
            if (code != CUDA_ERROR_INVALID_VALUE)
                return lib_->check(code, "cuMemcpy2DAsync_v2", name_);
        }
        use();
        for (int64_t row = 0; row < r.rows; ++row)
            CLEAVE_CUDA(cuMemcpyDtoDAsync_v2,
                        destination + static_cast<CUdeviceptr>(row * r.destination_stride),
                        source + static_cast<CUdeviceptr>(row * r.source_stride),
                        static_cast<size_t>(r.row_bytes), stream_);
    }

    void launch(GpuFunction function, const std::array<unsigned, 3>& grid,
                const std::array<unsigned, 3>& block, unsigned shared_bytes, void** args,
                bool waits_itself) override {
        const bool overlaps = overlap_ && behind_one_that_waits_ && waits_itself;
        use();
        if (overlaps) {
            CUlaunchAttribute attribute{};
            attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
            attribute.value.programmaticStreamSerializationAllowed = 1;
            const CUlaunchConfig config{grid[0],  grid[1],      grid[2], block[0],   block[1],
                                        block[2], shared_bytes, stream_, &attribute, 1};
            CLEAVE_CUDA(cuLaunchKernelEx, &config, static_cast<CUfunction>(function), args,
                        nullptr);
            ++overlapped_;
        } else {
            CLEAVE_CUDA(cuLaunchKernel, static_cast<CUfunction>(function), grid[0], grid[1],
                        grid[2], block[0], block[1], block[2], shared_bytes, stream_, args,
                        nullptr);
        }
        behind_one_that_waits_ = waits_itself;
    }
    // Captures keep such an edge from CUDA 12.3 on (CUDA C++ Programming Guide, "Programmatic
    // Dependent Launch", use in graphs).
    Supports overlap_launches(bool wanted) override {
        constexpr int kFirstDriver = 12030, kFirstCapability = 9;
        overlap_ = false;
        use();
        int version = 0, capability = 0;
        CLEAVE_CUDA(cuDriverGetVersion, &version);
        CLEAVE_CUDA(cuDeviceGetAttribute, &capability, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                    device_);
        if (!lib_->call.cuLaunchKernelEx || version < kFirstDriver)
            return {false,
                    fmt::format("captured launches overlap from CUDA 12.3 on; the driver is "
                                "of CUDA {}.{}{}",
                                version / 1000, version % 1000 / 10,
                                lib_->call.cuLaunchKernelEx ? "" : ", without cuLaunchKernelEx")};
        if (capability < kFirstCapability)
            return {false, fmt::format("launches overlap from sm_90 on; {} has compute capability "
                                       "{}",
                                       name_, capability)};
        overlap_ = wanted;
        return {true, {}};
    }
    uint64_t overlapped_launches() const override { return overlapped_; }
    bool is_idle() override {
        use();
        return is_ready(lib_->call.cuStreamQuery(stream_), "cuStreamQuery");
    }

    GpuEvent make_event(bool timed) override {
        use();
        CUevent event = nullptr;
        CLEAVE_CUDA(cuEventCreate, &event, timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING);
        return event;
    }
    void destroy_event(GpuEvent event) override {
        use();
        CLEAVE_CUDA(cuEventDestroy_v2, static_cast<CUevent>(event));
    }
    void record(GpuEvent event) override {
        use();
        CLEAVE_CUDA(cuEventRecord, static_cast<CUevent>(event), stream_);
    }
    bool has_passed(GpuEvent event) override {
        use();
        return is_ready(lib_->call.cuEventQuery(static_cast<CUevent>(event)), "cuEventQuery");
    }
    double elapsed_ms(GpuEvent from, GpuEvent to) override {
        use();
        float ms = 0;
        CLEAVE_CUDA(cuEventElapsedTime, &ms, static_cast<CUevent>(from), static_cast<CUevent>(to));
        return ms;
    }

    void begin_capture() override {
        use();
        CLEAVE_CUDA(cuStreamBeginCapture_v2, stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    }
    GpuGraph end_capture() override {
        use();
        CUgraph graph = nullptr;
        CLEAVE_CUDA(cuStreamEndCapture, stream_, &graph);
        CUgraphExec exec = nullptr;
        const CUresult code = lib_->call.cuGraphInstantiateWithFlags(&exec, graph, 0);
        lib_->call.cuGraphDestroy(graph);
        lib_->check(code, "cuGraphInstantiateWithFlags", name_);
        return exec;
    }
    void abandon_capture() noexcept override {
        behind_one_that_waits_ = false;
        lib_->call.cuCtxSetCurrent(context_);
        CUgraph graph = nullptr;
        lib_->call.cuStreamEndCapture(stream_, &graph);
        if (graph) lib_->call.cuGraphDestroy(graph);
    }
    void bring(GpuGraph graph) override {
        use();
        CLEAVE_CUDA(cuGraphUpload, static_cast<CUgraphExec>(graph), stream_);
    }
    void replay(GpuGraph graph) override {
        use();
        CLEAVE_CUDA(cuGraphLaunch, static_cast<CUgraphExec>(graph), stream_);
    }
    void destroy_graph(GpuGraph graph) override {
        use();
        CLEAVE_CUDA(cuGraphExecDestroy, static_cast<CUgraphExec>(graph));
    }

    void make_current() override { use(); }
    void* native_stream() override { return stream_; }

    GpuModule load(std::span<const std::byte> object) override {
        use();
        CUmodule module = nullptr;
        const CUresult code = lib_->call.cuModuleLoadData(&module, object.data());
        if (code == CUDA_ERROR_INVALID_IMAGE || code == CUDA_ERROR_NO_BINARY_FOR_GPU ||
            code == CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
            throw RefusedObject("cuModuleLoadData", lib_->error(code), name_);
        lib_->check(code, "cuModuleLoadData", name_);
        return module;
    }
    void unload(GpuModule module) override {
        use();
        CLEAVE_CUDA(cuModuleUnload, static_cast<CUmodule>(module));
    }
    // With lazy loading, the default from CUDA 12.2 on, a kernel goes to the device here and not
    // with its module (CUDA Programming Guide, "Lazy Loading").
    GpuFunction function(GpuModule module, const std::string& name) override {
        use();
        CUfunction function = nullptr;
        CLEAVE_CUDA(cuModuleGetFunction, &function, static_cast<CUmodule>(module), name.c_str());
        return function;
    }
    int64_t most_threads(GpuFunction function) override {
        use();
        int threads = 0;
        CLEAVE_CUDA(cuFuncGetAttribute, &threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                    static_cast<CUfunction>(function));
        return threads;
    }
    // Beyond 48 KiB a kernel has to ask (CUDA C++ Programming Guide, compute capability 7.x on).
    void allow_shared(GpuFunction function, int64_t bytes) override {
        if (bytes <= 48 * 1024) return;
        use();
        CLEAVE_CUDA(cuFuncSetAttribute, static_cast<CUfunction>(function),
                    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(bytes));
    }

private:
    // Before every call: what may have put something on the stream ends a row of launches.
    void use() {
        behind_one_that_waits_ = false;
        CLEAVE_CUDA(cuCtxSetCurrent, context_);
    }

    // Made when it is first asked for; null on a card without pools.
    CUmemoryPool pool() {
        use();
        int has_pools = 0;
        if (pool_) return pool_;
        CLEAVE_CUDA(cuDeviceGetAttribute, &has_pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
                    device_);
        CUmemPoolProps properties{};
        properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
        if (has_pools) CLEAVE_CUDA(cuMemPoolCreate, &pool_, &properties);
        return pool_;
    }

    std::optional<DeviceAddress> made(CUdeviceptr address, CUresult code, const char* function) {
        if (code == CUDA_ERROR_OUT_OF_MEMORY) return std::nullopt;
        lib_->check(code, function, name_);
        return address;
    }

    bool is_ready(CUresult code, const char* function) const {
        if (code == CUDA_ERROR_NOT_READY) return false;
        lib_->check(code, function, name_);
        return true;
    }

    // Why the card takes no context, where its administrator or another process has seen to that.
    std::string closed() const {
        int mode = 0;
        lib_->call.cuDeviceGetAttribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device_);
        if (mode == CU_COMPUTEMODE_PROHIBITED)
            return "; the card's compute mode is Prohibited (nvidia-smi -c DEFAULT opens it)";
        if (mode == CU_COMPUTEMODE_EXCLUSIVE_PROCESS)
            return "; the card's compute mode is Exclusive_Process, and another process has it "
                   "(nvidia-smi names it)";
        return "";
    }

    void start(CUDA_MEMCPY2D& copy, const Rectangle& r) {
        if (r.rows > 0 && r.row_bytes > 0)
            lib_->check(pitched(copy, r), "cuMemcpy2DAsync_v2", name_);
    }
    CUresult pitched(CUDA_MEMCPY2D& copy, const Rectangle& r) {
        use();
        copy.srcPitch = static_cast<size_t>(std::max(r.source_stride, r.row_bytes));
        copy.dstPitch = static_cast<size_t>(std::max(r.destination_stride, r.row_bytes));
        copy.WidthInBytes = static_cast<size_t>(r.row_bytes);
        copy.Height = static_cast<size_t>(r.rows);
        return lib_->call.cuMemcpy2DAsync_v2(&copy, stream_);
    }

    std::shared_ptr<const CudaLibrary> lib_;
    CUdevice device_;
    std::string name_;
    CUcontext context_ = nullptr;
    CUstream stream_ = nullptr;
    CUmemoryPool pool_ = nullptr;
    // Whether launches may overlap, and whether the last thing on the stream is one that waits
    // itself for those before it.
    bool overlap_ = false;
    std::atomic<bool> behind_one_that_waits_{false};  // an abort is of another thread
    uint64_t overlapped_ = 0;
};

#undef CLEAVE_CUDA

}  // namespace

std::unique_ptr<GpuContext> open_cuda_context(std::shared_ptr<const CudaLibrary> library,
                                              CUdevice device, std::string name) {
    return std::make_unique<CudaContext>(std::move(library), device, std::move(name));
}

}  // namespace cleave::runtime
