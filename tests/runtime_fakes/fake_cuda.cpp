// SPDX-License-Identifier: Apache-2.0
// A libcuda that records: see fake_gpu.h.
#include "tests/runtime_fakes/fake_gpu.h"

#include "runtime/drivers/cuda/symbols.h"

using namespace cleave::fake;
using namespace cleave::runtime::cuda;

namespace {

constexpr Card kCards[] = {
    {"NVIDIA H100 80GB HBM3", "0000:3B:00.0", 0x10, int64_t{80} << 30, "sm_90a"},
    {"NVIDIA H100 80GB HBM3", "0000:5E:00.0", 0x40, int64_t{80} << 30, "sm_90a"},
    {"NVIDIA A40", "0000:86:00.0", 0x70, int64_t{45} << 30, "sm_86"}};

constexpr int kUnavailable = 46, kPeerUnsupported = 217, kUnknown = 999;

// Contexts are numbers from 1.
CUcontext context_of(int device) {
    return reinterpret_cast<CUcontext>(static_cast<uintptr_t>(device) + 1);
}
// Of a block that asks for it.
int most_shared(int device) { return device < 2 ? 232'448 : 101'376; }
// Whether kernels and copies of one card reach the other's memory.
bool reach(int device, int peer) { return device != peer && device < 2 && peer < 2; }
bool is_retained(int device) { return device >= 0 && state().contexts[device] > 0; }

}  // namespace

extern "C" {

CUresult cuInit(unsigned int) {
    const Call call("cuInit");
    const char* queues = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    state().queues = queues ? queues : "";
    if (call.code) return call.code;
    return state().visible > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}
CUresult cuDriverGetVersion(int* version) {
    *version = state().version;
    return Call("cuDriverGetVersion").code;
}
CUresult cuGetErrorName(CUresult error, const char** text) {
    static const std::map<int, const char*> names{
        {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
        {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
        {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},
        {kUnavailable, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
        {kPeerUnsupported, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"},
        {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS"},
        {kCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
        {kCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"}};
    const auto found = names.find(error);
    *text = found == names.end() ? nullptr : found->second;
    return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult error, const char** text) {
    *text = error == kIllegalAddress ? "an illegal memory access was encountered" : nullptr;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
    *count = state().visible;
    return Call("cuDeviceGetCount").code;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
    *device = ordinal;
    if (const Call call("cuDeviceGet"); call.code) return call.code;
    return ordinal >= 0 && ordinal < state().visible ? CUDA_SUCCESS : kInvalidDevice;
}
CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
    const std::string part = state().parted ? " MIG 1g.10gb" : "";
    std::strncpy(name, (kCards[device].name + part).c_str(), static_cast<size_t>(length));
    return Call("cuDeviceGetName").code;
}
CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
    for (int i = 0; i < 16; ++i) uuid->bytes[i] = static_cast<char>(kCards[device].uuid + i);
    return Call("cuDeviceGetUuid_v2").code;
}
CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
    std::strncpy(text, kCards[device].pci, static_cast<size_t>(length));
    return Call("cuDeviceGetPCIBusId").code;
}
CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
    *bytes = static_cast<size_t>(kCards[device].memory);
    return Call("cuDeviceTotalMem_v2").code;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
    const bool hopper = device < 2;
    const std::map<int, int> values{
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2'147'483'647},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65'535},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65'535},
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, state().compute_mode},
        {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, hopper},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1'980'000},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, hopper ? 132 : 84},
        {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 2'619'000},
        {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 5120},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, hopper ? 9 : 8},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, hopper ? 0 : 6},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, most_shared(device)}};
    const auto found = values.find(attribute);
    if (found == values.end()) return kInvalidValue;
    *value = found->second;
    return Call("cuDeviceGetAttribute").code;
}
CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
    *can = reach(device, peer);
    return Call("cuDeviceCanAccessPeer").code;
}
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
    const int to = static_cast<int>(reinterpret_cast<uintptr_t>(peer)) - 1;
    const Call call("cuCtxEnablePeerAccess",
                    std::to_string(current_device) + " " + std::to_string(to));
    if (call.code) return call.code;
    if (flags != 0 || !is_retained(current_device) || !is_retained(to)) return kInvalidValue;
    if (!reach(current_device, to)) return kPeerUnsupported;
    return state().peers.insert({current_device, to}).second
               ? CUDA_SUCCESS
               : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    const Call call("cuDevicePrimaryCtxRetain", std::to_string(device));
    if (call.code) return call.code;
    if (state().compute_mode != 0)
        return state().compute_mode == CU_COMPUTEMODE_PROHIBITED ? kUnknown : kUnavailable;
    ++state().contexts[device];
    *context = context_of(device);
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    Call call("cuDevicePrimaryCtxRelease_v2", std::to_string(device));
    if (!is_retained(device)) return kInvalidContext;
    if (state().contexts[device] == 1) settle(call, {device});
    if (--state().contexts[device] == 0 && state().fault_of(device)) drop_device(device);
    return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
    const std::lock_guard lock(state().mutex);
    const int device = static_cast<int>(reinterpret_cast<uintptr_t>(context)) - 1;
    if (!is_retained(device)) return kInvalidContext;
    current_device = device;
    return CUDA_SUCCESS;
}
CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
    const Call call("cuMemGetInfo_v2");
    if (!is_retained(current_device)) return kInvalidContext;
    *total = static_cast<size_t>(kCards[current_device].memory);
    *free = *total - static_cast<size_t>(state().used(current_device));
    return call.code;
}
int fake_take_on(int device, int64_t bytes) {
    return take_for_library(device, bytes, kCards[device]);
}
CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
    Call call("cuMemAlloc_v2", std::to_string(bytes));
    if (call.unsafe().code) return call.code;
    if (bytes == 0) return kInvalidValue;
    if (!is_retained(current_device)) return kInvalidContext;
    uintptr_t made = 0;
    const int code = allocate(&made, bytes, kCards[current_device]);
    *address = made;
    return code;
}
CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
    const Call call("cuMemPoolCreate");
    if (call.code) return call.code;
    const int device = properties->location.id;
    if (properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED || properties->handleTypes ||
        properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !is_retained(device) ||
        device >= 2)
        return kInvalidValue;
    return make_pool(reinterpret_cast<Pool**>(pool), device);
}
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    const Call call("cuMemPoolDestroy");
    return destroy_pool(pool);
}
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* access, size_t count) {
    const Call call("cuMemPoolSetAccess", std::to_string(access->location.id));
    if (call.code) return call.code;
    if (count != 1 || access->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE || access->location.id >= 2)
        return kInvalidValue;
    return open_pool(pool, access->location.id);
}
// In a capture it would become a node of the graph: the fakes have none.
CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t bytes, CUmemoryPool pool,
                                 CUstream stream) {
    Call call("cuMemAllocFromPoolAsync", std::to_string(bytes));
    if (call.unsafe().code) return call.code;
    Pool* from = find_pool(pool);
    if (!from || !find_stream(stream) || from->device != current_device || bytes == 0)
        return kInvalidValue;
    uintptr_t made = 0;
    const int code = allocate(&made, bytes, kCards[current_device], from);
    *address = made;
    return code;
}
CUresult cuMemFree_v2(CUdeviceptr address) {
    // What is a pool's it gives back without waiting for anybody.
    Call call("cuMemFree_v2");
    return call.unsafe().code ? call.code : free_block(call, address, false);
}
CUresult cuMemHostAlloc(void** memory, size_t bytes, unsigned int flags) {
    Call call("cuMemHostAlloc", std::to_string(bytes));
    if (call.unsafe().code) return call.code;
    if (!is_retained(current_device)) return kInvalidContext;
    return flags > 7 ? kInvalidValue : allocate_pinned(memory, bytes);
}
CUresult cuMemFreeHost(void* memory) {
    Call call("cuMemFreeHost");
    return call.unsafe().code ? call.code : free_pinned(call, memory);
}
CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t count, CUstream stream) {
    const Call call("cuMemsetD8Async");
    return call.code ? call.code : fill(address, value, count, stream);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr destination, const void* source, size_t bytes,
                              CUstream stream) {
    const Call call("cuMemcpyHtoDAsync_v2");
    if (call.code) return call.code;
    return copy({reinterpret_cast<uintptr_t>(source), destination, bytes, bytes, bytes, 1, true},
                stream);
}
CUresult cuMemcpyDtoHAsync_v2(void* destination, CUdeviceptr source, size_t bytes,
                              CUstream stream) {
    const Call call("cuMemcpyDtoHAsync_v2");
    if (call.code) return call.code;
    return copy({source, reinterpret_cast<uintptr_t>(destination), bytes, bytes, bytes, 1, false},
                stream);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr destination, CUdeviceptr source, size_t bytes,
                              CUstream stream) {
    const Call call("cuMemcpyDtoDAsync_v2");
    if (call.code) return call.code;
    return copy({source, destination, bytes, bytes, bytes, 1, false, true}, stream);
}
// Within a card it may refuse pitches that cuMemAllocPitch did not choose: the third card does.
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* c, CUstream stream) {
    const Call call("cuMemcpy2DAsync_v2");
    if (call.code) return call.code;
    const bool in = c->srcMemoryType == CU_MEMORYTYPE_HOST;
    const bool out = c->dstMemoryType == CU_MEMORYTYPE_HOST;
    if (!in && !out && current_device == 2 && (c->srcPitch | c->dstPitch) % 512 != 0)
        return kInvalidValue;
    const Copy wanted{in ? reinterpret_cast<uintptr_t>(c->srcHost) : c->srcDevice,
                      out ? reinterpret_cast<uintptr_t>(c->dstHost) : c->dstDevice,
                      c->srcPitch,
                      c->dstPitch,
                      c->WidthInBytes,
                      c->Height,
                      in,
                      !in && !out};
    return copy(wanted, stream);
}
CUresult cuStreamCreate(CUstream* stream, unsigned int flags) {
    Call call("cuStreamCreate", std::to_string(flags));
    if (call.code) return call.code;
    if (!is_retained(current_device)) return kInvalidContext;
    return make_stream(reinterpret_cast<Stream**>(stream));
}
CUresult cuStreamDestroy_v2(CUstream stream) {
    Call call("cuStreamDestroy_v2");
    return destroy_stream(call, stream);
}
CUresult cuStreamSynchronize(CUstream stream) {
    Call call("cuStreamSynchronize");
    return call.code ? call.code : wait_for_stream(call, stream);
}
CUresult cuStreamQuery(CUstream stream) {
    const Call call("cuStreamQuery");
    return call.code ? call.code : query_stream(stream);
}
CUresult cuEventCreate(CUevent* event, unsigned int flags) {
    const Call call("cuEventCreate", std::to_string(flags));
    if (call.code) return call.code;
    if (!is_retained(current_device)) return kInvalidContext;
    return make_event(reinterpret_cast<Event**>(event), !(flags & CU_EVENT_DISABLE_TIMING));
}
CUresult cuEventDestroy_v2(CUevent event) {
    const Call call("cuEventDestroy_v2");
    return destroy_event(event);
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
    const Call call("cuEventRecord");
    return call.code ? call.code : record_event(event, stream);
}
CUresult cuEventQuery(CUevent event) {
    Call call("cuEventQuery");
    return call.code ? call.code : query_event(call, event);
}
CUresult cuEventElapsedTime(float* ms, CUevent from, CUevent to) {
    const Call call("cuEventElapsedTime");
    return call.code ? call.code : elapsed(ms, from, to);
}
CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
    const Call call("cuStreamBeginCapture_v2", std::to_string(mode));
    return call.code ? call.code : begin_capture(stream, mode);
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
    const Call call("cuStreamEndCapture");
    return end_capture(call, stream, reinterpret_cast<Graph**>(graph));
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
    const Call call("cuGraphInstantiateWithFlags");
    if (call.code) return call.code;
    return flags ? kInvalidValue : instantiate(reinterpret_cast<GraphExec**>(exec), graph);
}
CUresult cuGraphUpload(CUgraphExec, CUstream) { return Call("cuGraphUpload").code; }
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    const Call call("cuGraphLaunch");
    return call.code ? call.code : launch_graph(exec, stream);
}
CUresult cuGraphExecDestroy(CUgraphExec exec) {
    Call call("cuGraphExecDestroy");
    return destroy_exec(call, exec);
}
CUresult cuGraphDestroy(CUgraph graph) {
    const Call call("cuGraphDestroy");
    return destroy_graph(graph);
}
CUresult cuModuleLoadData(CUmodule* module, const void* image) {
    Call call("cuModuleLoadData");
    if (call.unsafe().code) return call.code;
    if (!is_retained(current_device)) return kInvalidContext;
    return load_module(reinterpret_cast<Module**>(module), image);
}
CUresult cuModuleUnload(CUmodule module) {
    Call call("cuModuleUnload");
    return call.unsafe().code ? call.code : unload_module(call, module);
}
// A text as image is the kernel's name.
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
    Call call("cuModuleGetFunction", name);
    if (call.code) return call.code;
    return find_function(call, reinterpret_cast<Function**>(function), module, name,
                         kCards[current_device], 48 * 1024);
}
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
    const Call call("cuFuncGetAttribute");
    return call.code ? call.code
                     : find_attribute(value, attribute, reinterpret_cast<Function*>(function));
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    auto* f = reinterpret_cast<Function*>(function);
    const Call call("cuFuncSetAttribute", std::to_string(value));
    if (call.code) return call.code;
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
        value > most_shared(f->module->device))
        return kInvalidValue;
    f->most_shared = value;
    return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                        void** arguments, void** extra) {
    auto* f = reinterpret_cast<Function*>(function);
    const Call call("cuLaunchKernel", f->name);
    if (call.code) return call.code;
    if (extra || grid_y > 65535 || grid_z > 65535) return kInvalidValue;
    return launch(f, {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes}, stream,
                  arguments);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* c, CUfunction function, void** arguments,
                          void** extra) {
    auto* f = reinterpret_cast<Function*>(function);
    const Call call("cuLaunchKernelEx", f->name + " behind " + launched_last(c->hStream));
    if (call.code) return call.code;
    if (extra || c->gridDimY > 65535 || c->gridDimZ > 65535 || current_device >= 2 ||
        c->numAttrs != 1 || c->attrs->id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION ||
        c->attrs->value.programmaticStreamSerializationAllowed != 1)
        return kInvalidValue;
    return launch(f,
                  {{c->gridDimX, c->gridDimY, c->gridDimZ},
                   {c->blockDimX, c->blockDimY, c->blockDimZ},
                   c->sharedMemBytes},
                  c->hStream, arguments);
}

}  // extern "C"
