// SPDX-License-Identifier: Apache-2.0
// A libamdhip64 that records: see fake_gpu.h.
#include "tests/runtime_fakes/fake_gpu.h"

#include "runtime/drivers/hip/symbols.h"

using namespace cleave::fake;
using namespace cleave::runtime::hip;

namespace {

constexpr Card kCards[] = {
    {"AMD Instinct MI250X", "0000:C1:00.0", 'a', int64_t{64} << 30, "gfx90a"},
    {"AMD Instinct MI250X", "0000:C6:00.0", 'b', int64_t{64} << 30, "gfx90a"},
    {"AMD Instinct MI300X", "0000:D1:00.0", 'c', int64_t{192} << 30, "gfx942"}};

bool is_shown(int device) { return device >= 0 && device < state().visible; }
int named(int device) { return state().alike ? 0 : device; }
uintptr_t number(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

}  // namespace

extern "C" {

const char* hipGetErrorName(hipError_t error) {
    static const std::map<int, const char*> names{
        {hipErrorOutOfMemory, "hipErrorOutOfMemory"},
        {hipErrorNoDevice, "hipErrorNoDevice"},
        {kIllegalAddress, "hipErrorIllegalAddress"},
        {kCaptureUnsupported, "hipErrorStreamCaptureUnsupported"},
        {kCaptureInvalidated, "hipErrorStreamCaptureInvalidated"}};
    const auto found = names.find(error);
    return found == names.end() ? "hipErrorUnknown" : found->second;
}
const char* hipGetErrorString(hipError_t error) {
    return error == hipErrorNoDevice ? "no ROCm-capable device is detected" : "unknown error";
}
hipError_t hipInit(unsigned int) {
    const Call call("hipInit");
    const char* queues = std::getenv("GPU_MAX_HW_QUEUES");
    state().queues = queues ? queues : "";
    if (call.code) return call.code;
    return state().visible > 0 ? hipSuccess : hipErrorNoDevice;
}
hipError_t hipRuntimeGetVersion(int* version) {
    *version = 60'240'134;
    return Call("hipRuntimeGetVersion").code;
}
hipError_t hipGetDeviceCount(int* count) {
    *count = state().visible;
    return Call("hipGetDeviceCount").code;
}
hipError_t hipDeviceGetName(char* name, int length, hipDevice_t device) {
    if (!is_shown(device)) return kInvalidDevice;
    std::strncpy(name, kCards[device].name, static_cast<size_t>(length));
    return Call("hipDeviceGetName").code;
}
hipError_t hipDeviceGetUuid(hipUUID* uuid, hipDevice_t device) {
    std::memset(uuid->bytes, kCards[named(device)].uuid, 16);
    // "GPU-XX" of an agent without one (hsa_ext_amd.h, HSA_AMD_AGENT_INFO_UUID), less what all
    // have.
    if (state().nameless) std::strncpy(uuid->bytes, "XX", 16);
    return Call("hipDeviceGetUuid").code;
}
hipError_t hipDeviceGetPCIBusId(char* text, int length, int device) {
    std::strncpy(text, kCards[named(device)].pci, static_cast<size_t>(length));
    return Call("hipDeviceGetPCIBusId").code;
}
hipError_t hipDeviceTotalMem(size_t* bytes, hipDevice_t device) {
    *bytes = static_cast<size_t>(kCards[device].memory);
    return Call("hipDeviceTotalMem").code;
}
// The layout is of no real version: the architecture's name is somewhere in it.
hipError_t hipGetDevicePropertiesR0600(void* properties, int device) {
    const char* arch = device < 2 ? "gfx90a:sramecc+:xnack-" : "gfx942:sramecc+:xnack-";
    if (state().graphics) arch = "gfx1100";
    if (state().integrated && device == 2) arch = "gfx1103";
    std::memcpy(static_cast<char*>(properties) + 1160, arch, std::strlen(arch) + 1);
    return Call("hipGetDevicePropertiesR0600").code;
}
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int device) {
    const std::map<int, int> values{{hipDeviceAttributeClockRate, 1'700'000},
                                    {hipDeviceAttributeMaxThreadsPerBlock, 1024},
                                    {hipDeviceAttributeMaxGridDimX, 2'147'483'647},
                                    {hipDeviceAttributeMaxGridDimY, 65'536},
                                    {hipDeviceAttributeMaxGridDimZ, 65'536},
                                    {hipDeviceAttributeMemoryBusWidth, 4096},
                                    {hipDeviceAttributeMemoryClockRate, 1'600'000},
                                    {hipDeviceAttributeMultiprocessorCount, device < 2 ? 110 : 304},
                                    {hipDeviceAttributeMaxRegistersPerBlock, 65536},
                                    {hipDeviceAttributeMaxSharedMemoryPerBlock, 65536},
                                    {hipDeviceAttributeMemoryPoolsSupported, device < 2},
                                    {hipDeviceAttributeWarpSize, 64},
                                    {kWallClockRate, state().timer_khz}};
    const auto found = values.find(attribute);
    if (found == values.end()) return kInvalidValue;
    *value = found->second;
    return Call("hipDeviceGetAttribute").code;
}
hipError_t hipDeviceCanAccessPeer(int* can, int device, int peer) {
    *can = device != peer;
    return Call("hipDeviceCanAccessPeer").code;
}
hipError_t hipDeviceEnablePeerAccess(int peer, unsigned int flags) {
    const Call call("hipDeviceEnablePeerAccess",
                    std::to_string(current_device) + " " + std::to_string(peer));
    if (call.code) return call.code;
    if (flags != 0 || !is_shown(peer) || peer == current_device) return kInvalidValue;
    return state().peers.insert({current_device, peer}).second ? hipSuccess
                                                               : hipErrorPeerAccessAlreadyEnabled;
}
hipError_t hipSetDevice(int device) {
    if (!is_shown(device)) return kInvalidDevice;
    current_device = device;
    return hipSuccess;
}
hipError_t hipDeviceReset() {
    const Call call("hipDeviceReset");
    drop_device(current_device);
    return hipSuccess;
}
hipError_t hipMemGetInfo(size_t* free, size_t* total) {
    const Call call("hipMemGetInfo");
    *total = static_cast<size_t>(kCards[current_device].memory);
    *free = *total - static_cast<size_t>(state().used(current_device));
    return call.code;
}
int fake_take_on(int device, int64_t bytes) {
    return take_for_library(device, bytes, kCards[device]);
}
hipError_t hipMalloc(void** address, size_t bytes) {
    Call call("hipMalloc", std::to_string(bytes));
    if (call.unsafe().code) return call.code;
    uintptr_t made = 0;
    const int code = allocate(&made, bytes, kCards[current_device]);
    *address = reinterpret_cast<void*>(made);
    return code;
}
hipError_t hipExtMallocWithFlags(void** address, size_t bytes, unsigned int flags) {
    if (const Call call("hipExtMallocWithFlags", std::to_string(flags)); call.code)
        return call.code;
    return hipMalloc(address, bytes);
}
hipError_t hipMemPoolCreate(hipMemPool_t* pool, const hipMemPoolProps* properties) {
    const Call call("hipMemPoolCreate");
    if (call.code) return call.code;
    const int device = properties->location.id;
    if (properties->allocType != hipMemAllocationTypePinned || properties->handleTypes ||
        properties->location.type != hipMemLocationTypeDevice || !is_shown(device) || device >= 2)
        return kInvalidValue;
    return make_pool(reinterpret_cast<Pool**>(pool), device);
}
hipError_t hipMemPoolDestroy(hipMemPool_t pool) {
    const Call call("hipMemPoolDestroy");
    return destroy_pool(pool);
}
hipError_t hipMemPoolSetAccess(hipMemPool_t pool, const hipMemAccessDesc* access, size_t count) {
    const Call call("hipMemPoolSetAccess", std::to_string(access->location.id));
    if (call.code) return call.code;
    if (count != 1 || access->location.type != hipMemLocationTypeDevice ||
        access->flags != hipMemAccessFlagsProtReadWrite || !is_shown(access->location.id))
        return kInvalidValue;
    return open_pool(pool, access->location.id);
}
// In a capture it would become a node of the graph: the fakes have none.
hipError_t hipMallocFromPoolAsync(void** address, size_t bytes, hipMemPool_t pool,
                                  hipStream_t stream) {
    Call call("hipMallocFromPoolAsync", std::to_string(bytes));
    if (call.unsafe().code) return call.code;
    Pool* from = find_pool(pool);
    if (!from || !find_stream(stream) || from->device != current_device) return kInvalidValue;
    uintptr_t made = 0;
    const int code = allocate(&made, bytes, kCards[current_device], from);
    *address = reinterpret_cast<void*>(made);
    return code;
}
hipError_t hipFree(void* address) {
    Call call("hipFree");
    return call.unsafe().code ? call.code : free_block(call, number(address));
}
// Coherent, mapped and portable, or kernels' signals to the host are not sure to arrive.
hipError_t hipHostMalloc(void** memory, size_t bytes, unsigned int flags) {
    Call call("hipHostMalloc", std::to_string(bytes));
    if (flags != (kHostMallocCoherent | kHostMallocMapped | kHostMallocPortable))
        return kInvalidValue;
    return call.unsafe().code ? call.code : allocate_pinned(memory, bytes);
}
hipError_t hipHostFree(void* memory) {
    Call call("hipHostFree");
    return call.unsafe().code ? call.code : free_pinned(call, memory);
}
hipError_t hipMemsetAsync(void* address, int value, size_t bytes, hipStream_t stream) {
    const Call call("hipMemsetAsync");
    return call.code ? call.code : fill(number(address), value, bytes, stream);
}
hipError_t hipMemcpyAsync(void* destination, const void* source, size_t bytes, hipMemcpyKind kind,
                          hipStream_t stream) {
    const Call call("hipMemcpyAsync");
    if (call.code) return call.code;
    return copy({number(source), number(destination), bytes, bytes, bytes, 1,
                 kind == hipMemcpyHostToDevice, kind == hipMemcpyDeviceToDevice},
                stream);
}
hipError_t hipMemcpy2DAsync(void* destination, size_t destination_pitch, const void* source,
                            size_t source_pitch, size_t width, size_t height, hipMemcpyKind kind,
                            hipStream_t stream) {
    const Call call("hipMemcpy2DAsync");
    if (call.code) return call.code;
    return copy({number(source), number(destination), source_pitch, destination_pitch, width,
                 height, kind == hipMemcpyHostToDevice, kind == hipMemcpyDeviceToDevice},
                stream);
}
hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned int flags) {
    const Call call("hipStreamCreateWithFlags", std::to_string(flags));
    return call.code ? call.code : make_stream(reinterpret_cast<Stream**>(stream));
}
hipError_t hipStreamDestroy(hipStream_t stream) {
    Call call("hipStreamDestroy");
    const int code = destroy_stream(call, stream);
    return call.code ? call.code : code;
}
hipError_t hipStreamSynchronize(hipStream_t stream) {
    Call call("hipStreamSynchronize");
    return call.code ? call.code : wait_for_stream(call, stream);
}
hipError_t hipStreamQuery(hipStream_t stream) {
    const Call call("hipStreamQuery");
    return call.code ? call.code : query_stream(stream);
}
hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags) {
    const Call call("hipEventCreateWithFlags", std::to_string(flags));
    if (call.code) return call.code;
    return make_event(reinterpret_cast<Event**>(event), !(flags & kEventDisableTiming));
}
hipError_t hipEventDestroy(hipEvent_t event) {
    const Call call("hipEventDestroy");
    return destroy_event(event);
}
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
    const Call call("hipEventRecord");
    return call.code ? call.code : record_event(event, stream);
}
hipError_t hipEventQuery(hipEvent_t event) {
    Call call("hipEventQuery");
    return call.code ? call.code : query_event(call, event);
}
hipError_t hipEventElapsedTime(float* ms, hipEvent_t from, hipEvent_t to) {
    const Call call("hipEventElapsedTime");
    return call.code ? call.code : elapsed(ms, from, to);
}
hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode) {
    const Call call("hipStreamBeginCapture", std::to_string(mode));
    return call.code ? call.code : begin_capture(stream, mode);
}
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph) {
    const Call call("hipStreamEndCapture");
    return end_capture(call, stream, reinterpret_cast<Graph**>(graph));
}
hipError_t hipGraphInstantiate(hipGraphExec_t* exec, hipGraph_t graph, hipGraphNode_t*, char*,
                               size_t) {
    const Call call("hipGraphInstantiate");
    return call.code ? call.code : instantiate(reinterpret_cast<GraphExec**>(exec), graph);
}
hipError_t hipGraphUpload(hipGraphExec_t, hipStream_t) { return Call("hipGraphUpload").code; }
hipError_t hipGraphLaunch(hipGraphExec_t exec, hipStream_t stream) {
    const Call call("hipGraphLaunch");
    return call.code ? call.code : launch_graph(exec, stream);
}
hipError_t hipGraphExecDestroy(hipGraphExec_t exec) {
    Call call("hipGraphExecDestroy");
    return destroy_exec(call, exec);
}
hipError_t hipGraphDestroy(hipGraph_t graph) {
    const Call call("hipGraphDestroy");
    return destroy_graph(graph);
}
hipError_t hipModuleLoadData(hipModule_t* module, const void* image) {
    Call call("hipModuleLoadData");
    if (call.unsafe().code) return call.code;
    return load_module(reinterpret_cast<Module**>(module), image);
}
hipError_t hipModuleUnload(hipModule_t module) {
    Call call("hipModuleUnload");
    return call.unsafe().code ? call.code : unload_module(call, module);
}
// A text as image is the kernel's name.
hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name) {
    Call call("hipModuleGetFunction", name);
    if (call.code) return call.code;
    return find_function(call, reinterpret_cast<Function**>(function), module, name,
                         kCards[current_device], 64 * 1024);
}
hipError_t hipFuncGetAttribute(int* value, hipFunction_attribute attribute,
                               hipFunction_t function) {
    const Call call("hipFuncGetAttribute");
    return call.code ? call.code
                     : find_attribute(value, attribute, reinterpret_cast<Function*>(function));
}
hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned int grid_x, unsigned int grid_y,
                                 unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                 unsigned int block_z, unsigned int shared_bytes,
                                 hipStream_t stream, void** arguments, void** extra) {
    auto* f = reinterpret_cast<Function*>(function);
    const Call call("hipModuleLaunchKernel", f->name);
    // Fewer than 2^32 threads along each axis.
    const bool wide = uint64_t{grid_x} * block_x >> 32 || uint64_t{grid_y} * block_y >> 32 ||
                      uint64_t{grid_z} * block_z >> 32;
    if (call.code || extra || wide) return call.code ? call.code : kInvalidValue;
    return launch(f, {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes}, stream,
                  arguments);
}

}  // extern "C"
