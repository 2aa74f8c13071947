// SPDX-License-Identifier: Apache-2.0
#include "runtime/drivers/cuda/cuda_driver.h"

#include <algorithm>
#include <cstdlib>

#include "codegen/gpu_arch.h"
#include "runtime/base/dynamic_library.h"
#include "runtime/base/errors.h"
#include "runtime/drivers/cuda/symbols.h"

namespace cleave::runtime {

namespace {

using namespace cuda;

struct CudaLibrary {
    // Never closed: its threads and exit handlers run on after the last context.
    explicit CudaLibrary(DynamicLibrary opened) : library(kept_open(std::move(opened))) {}

    // The first symbol that is missing, or null.
    const char* resolve() {
#define CLEAVE_RESOLVE(name, parameters)                                      \
    call.name = reinterpret_cast<decltype(call.name)>(library.symbol(#name)); \
    if (!call.name) return #name;
        CLEAVE_CUDA_FUNCTIONS(CLEAVE_RESOLVE)
#undef CLEAVE_RESOLVE
#define CLEAVE_RESOLVE(name, parameters) \
    call.name = reinterpret_cast<decltype(call.name)>(library.symbol(#name));
        CLEAVE_CUDA_NEWER_FUNCTIONS(CLEAVE_RESOLVE)
#undef CLEAVE_RESOLVE
        return nullptr;
    }

    std::string error(CUresult code) const {
        const char *name = nullptr, *text = nullptr;
        call.cuGetErrorName(code, &name);
        call.cuGetErrorString(code, &text);
        if (code == CUDA_ERROR_STUB_LIBRARY) {  // which has no texts either
            name = "CUDA_ERROR_STUB_LIBRARY";
            text = "the toolkit's stub to link with, no driver";
        }
        return vendor_error(name, text, code);
    }

    void check(CUresult code, const char* function, const std::string& device) const {
        if (code != CUDA_SUCCESS) throw VendorError(function, error(code), device);
    }

    DynamicLibrary& library;
    cuda::Functions call;
};

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

    // Of the context's own pool, where the card has pools. Its release threshold stays 0, but what is freed goes back only in
    // calls that block (cuStreamSynchronize and its like), of which there are none here: the pool keeps it for the next
    // allocation, and gives all back when it goes.
    std::optional<DeviceAddress> allocate(int64_t bytes) override {
        const CUmemoryPool from = pool();
        if (!from) return allocate_exchange(bytes);
        CUdeviceptr address = 0;
        const CUresult code =
            lib_->call.cuMemAllocFromPoolAsync(&address, static_cast<size_t>(bytes), from, stream_);
        return made(address, code, "cuMemAllocFromPoolAsync");
    }
    // Plain memory: what cuCtxEnablePeerAccess opens to peers, and what their signals are known to reach.
    std::optional<DeviceAddress> allocate_exchange(int64_t bytes) override {
        use();
        CUdeviceptr address = 0;
        const CUresult code = lib_->call.cuMemAlloc_v2(&address, static_cast<size_t>(bytes));
        return made(address, code, "cuMemAlloc_v2");
    }
    // Also of memory of the pool, for which it waits for nobody: who calls it has waited for the stream.
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
    // One copy where the driver takes the pitches: of those that it did not choose itself it may refuse any (cuMemcpy2DAsync,
    // "intra-device memory copies"); then row by row.
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
    // Captures keep such an edge from CUDA 12.3 on (CUDA C++ Programming Guide, "Programmatic Dependent Launch", use in graphs).
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
    // With lazy loading, the default from CUDA 12.2 on, a kernel goes to the device here and not with its module (CUDA
    // Programming Guide, "Lazy Loading").
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
    // A hint (CUDA C++ Programming Guide, "Shared Memory", compute capability 7.x on): otherwise the driver divides by what a
    // kernel needs itself, and no block of the next launch has room beside one with little shared memory. Puts nothing on
    // the stream.
    void prefer_shared(GpuFunction function) override {
        CLEAVE_CUDA(cuCtxSetCurrent, context_);
        CLEAVE_CUDA(cuFuncSetAttribute, static_cast<CUfunction>(function),
                    CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                    CU_SHAREDMEM_CARVEOUT_MAX_SHARED);
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
    // Whether launches may overlap, and whether the last thing on the stream is one that waits itself for those before it.
    bool overlap_ = false, behind_one_that_waits_ = false;
    uint64_t overlapped_ = 0;
};

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
        if (codegen::find_gpu_arch(facts.arch + "a")) facts.arch += "a";
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
        return std::make_unique<CudaContext>(lib_, handle(ordinal), name);
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
    // Kernels are loaded with their module, not at their first launch: loading may wait for what runs in the context, and a
    // peer's kernel there may wait for this very launch (CUDA C++ Programming Guide, "Lazy loading"). The user's word counts.
    ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    ::setenv(kCudaQueues, "32", 0);
    if (const CUresult code = lib->call.cuInit(0); code != CUDA_SUCCESS)
        return {nullptr, fmt::format("{}: cuInit: {}", lib->library.name(), lib->error(code))};
    auto driver = std::make_shared<CudaDriver>(lib);
    if (driver->count() == 0)
        return {nullptr, fmt::format("{} shows no device", lib->library.name())};
    return {driver, ""};
}

}  // namespace cleave::runtime
