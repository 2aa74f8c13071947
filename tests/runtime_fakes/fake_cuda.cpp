// SPDX-License-Identifier: Apache-2.0
// A libcuda that records: see fake_gpu.h.
#include "tests/runtime_fakes/fake_gpu.h"

#include "runtime/drivers/cuda/symbols.h"

using namespace cleave::fake;
using namespace cleave::runtime::cuda;

namespace {

constexpr CUresult kInvalidValue = 1, kInvalidDevice = 101, kInvalidContext = 201, kNotFound = 500;

constexpr Card kCards[] = {{"NVIDIA H100 80GB HBM3", "0000:3B:00.0", 0x10, int64_t{80} << 30},
                           {"NVIDIA H100 80GB HBM3", "0000:5E:00.0", 0x40, int64_t{80} << 30},
                           {"NVIDIA A40", "0000:86:00.0", 0x70, int64_t{45} << 30}};

// Contexts are numbers from 1.
CUcontext context_of(int device) {
    return reinterpret_cast<CUcontext>(static_cast<uintptr_t>(device) + 1);
}
Stream* stream_of(CUstream stream) {
    auto* known = reinterpret_cast<Stream*>(stream);
    return state().streams.count(known) ? known : nullptr;
}
bool is_retained(int device) { return device >= 0 && state().contexts[device] > 0; }

}  // namespace

CLEAVE_FAKE_CONTROLS

extern "C" {

CUresult cuInit(unsigned int) {
    if (int code = enter("cuInit")) return code;
    return state().visible > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}
CUresult cuDriverGetVersion(int* version) {
    *version = 13000;
    return enter("cuDriverGetVersion");
}
CUresult cuGetErrorName(CUresult error, const char** text) {
    *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
            : error == CUDA_ERROR_NO_DEVICE   ? "CUDA_ERROR_NO_DEVICE"
            : error == 700                    ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                              : nullptr;
    return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult error, const char** text) {
    *text = error == 700 ? "an illegal memory access was encountered" : nullptr;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
    *count = state().visible;
    return enter("cuDeviceGetCount");
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
    *device = ordinal;
    if (int code = enter("cuDeviceGet")) return code;
    return ordinal >= 0 && ordinal < state().visible ? CUDA_SUCCESS : kInvalidDevice;
}
CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
    std::strncpy(name, kCards[device].name, static_cast<size_t>(length));
    return enter("cuDeviceGetName");
}
CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
    for (int i = 0; i < 16; ++i) uuid->bytes[i] = static_cast<char>(kCards[device].uuid + i);
    return enter("cuDeviceGetUuid_v2");
}
CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
    std::strncpy(text, kCards[device].pci, static_cast<size_t>(length));
    return enter("cuDeviceGetPCIBusId");
}
CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
    *bytes = static_cast<size_t>(kCards[device].memory);
    return enter("cuDeviceTotalMem_v2");
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
    const bool hopper = device < 2;
    const std::map<int, int> values{
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1'980'000},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, hopper ? 132 : 84},
        {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 2'619'000},
        {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 5120},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, hopper ? 9 : 8},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, hopper ? 0 : 6},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, hopper ? 232'448 : 101'376}};
    const auto found = values.find(attribute);
    if (found == values.end()) return kInvalidValue;
    *value = found->second;
    return enter("cuDeviceGetAttribute");
}
CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
    *can = device != peer && device < 2 && peer < 2;
    return enter("cuDeviceCanAccessPeer");
}
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
    const int to = static_cast<int>(reinterpret_cast<uintptr_t>(peer)) - 1;
    if (int code = enter("cuCtxEnablePeerAccess",
                         std::to_string(current_device) + " " + std::to_string(to)))
        return code;
    if (flags != 0 || !is_retained(current_device) || !is_retained(to) || to == current_device)
        return kInvalidValue;
    return state().peers.insert({current_device, to}).second
               ? CUDA_SUCCESS
               : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    if (int code = enter("cuDevicePrimaryCtxRetain", std::to_string(device))) return code;
    ++state().contexts[device];
    *context = context_of(device);
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    enter("cuDevicePrimaryCtxRelease_v2", std::to_string(device));
    if (!is_retained(device)) return kInvalidContext;
    --state().contexts[device];
    return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
    const int device = static_cast<int>(reinterpret_cast<uintptr_t>(context)) - 1;
    if (!is_retained(device)) return kInvalidContext;
    current_device = device;
    return CUDA_SUCCESS;
}
CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
    if (!is_retained(current_device)) return kInvalidContext;
    *total = static_cast<size_t>(kCards[current_device].memory);
    *free = *total - static_cast<size_t>(state().used(current_device));
    return enter("cuMemGetInfo_v2");
}
CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
    if (int code = enter("cuMemAlloc_v2", std::to_string(bytes))) return code;
    if (!is_retained(current_device)) return kInvalidContext;
    State& s = state();
    if (s.used(current_device) + static_cast<int64_t>(bytes) > kCards[current_device].memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    void* memory = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
    if (!memory) return CUDA_ERROR_OUT_OF_MEMORY;
    s.blocks[reinterpret_cast<uintptr_t>(memory)] = {current_device, static_cast<int64_t>(bytes)};
    *address = reinterpret_cast<CUdeviceptr>(memory);
    return CUDA_SUCCESS;
}
CUresult cuMemFree_v2(CUdeviceptr address) {
    if (int code = enter("cuMemFree_v2")) return code;
    auto found = state().blocks.find(address);
    if (found == state().blocks.end() || found->second.device != current_device)
        return kInvalidValue;
    state().blocks.erase(found);
    std::free(reinterpret_cast<void*>(address));
    return CUDA_SUCCESS;
}
CUresult cuMemHostAlloc(void** memory, size_t bytes, unsigned int) {
    if (int code = enter("cuMemHostAlloc", std::to_string(bytes))) return code;
    *memory = std::malloc(bytes);
    state().pinned.insert(*memory);
    return CUDA_SUCCESS;
}
CUresult cuMemFreeHost(void* memory) {
    if (int code = enter("cuMemFreeHost")) return code;
    if (state().pinned.erase(memory) == 0) return kInvalidValue;
    std::free(memory);
    return CUDA_SUCCESS;
}
CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t count, CUstream stream) {
    if (int code = enter("cuMemsetD8Async")) return code;
    Stream* s = stream_of(stream);
    if (!s || !state().holds(address, static_cast<int64_t>(count), s->device)) return kInvalidValue;
    s->queue.emplace_back([=] { std::memset(reinterpret_cast<void*>(address), value, count); });
    return CUDA_SUCCESS;
}
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* c, CUstream stream) {
    if (int code = enter("cuMemcpy2DAsync_v2")) return code;
    Stream* s = stream_of(stream);
    if (!s || c->srcPitch < c->WidthInBytes || c->dstPitch < c->WidthInBytes) return kInvalidValue;
    const bool in = c->srcMemoryType == CU_MEMORYTYPE_HOST;
    const Copy copy{in ? reinterpret_cast<uintptr_t>(c->srcHost) : c->srcDevice,
                    in ? c->dstDevice : reinterpret_cast<uintptr_t>(c->dstHost),
                    c->srcPitch,
                    c->dstPitch,
                    c->WidthInBytes,
                    c->Height};
    const uintptr_t device = in ? copy.to : copy.from;
    const size_t pitch = in ? copy.to_pitch : copy.from_pitch;
    if (!state().holds(device, static_cast<int64_t>(pitch * (copy.height - 1) + copy.width),
                       s->device))
        return kInvalidValue;
    s->queue.emplace_back([copy] { run(copy); });
    return CUDA_SUCCESS;
}
CUresult cuStreamCreate(CUstream* stream, unsigned int flags) {
    if (int code = enter("cuStreamCreate", std::to_string(flags))) return code;
    if (!is_retained(current_device)) return kInvalidContext;
    auto* made = new Stream{current_device, {}};
    state().streams.insert(made);
    *stream = reinterpret_cast<CUstream>(made);
    return CUDA_SUCCESS;
}
CUresult cuStreamDestroy_v2(CUstream stream) {
    enter("cuStreamDestroy_v2");
    Stream* s = stream_of(stream);
    if (!s) return kInvalidValue;
    state().streams.erase(s);
    delete s;
    return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream stream) {
    if (int code = enter("cuStreamSynchronize")) return code;
    Stream* s = stream_of(stream);
    if (!s) return kInvalidValue;
    finish(*s);
    return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule* module, const void* image) {
    if (int code = enter("cuModuleLoadData")) return code;
    if (!is_retained(current_device)) return kInvalidContext;
    if (!image) return kInvalidValue;
    auto* made = new Module{current_device, static_cast<const char*>(image)};
    state().modules.insert(made);
    *module = reinterpret_cast<CUmodule>(made);
    return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule module) {
    if (int code = enter("cuModuleUnload")) return code;
    auto* known = reinterpret_cast<Module*>(module);
    if (state().modules.erase(known) == 0) return kInvalidValue;
    delete known;
    return CUDA_SUCCESS;
}
// The image is the text of the kernel's name.
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
    if (int code = enter("cuModuleGetFunction", name)) return code;
    auto* known = reinterpret_cast<Module*>(module);
    if (state().modules.count(known) == 0) return kInvalidValue;
    if (known->image != name) return kNotFound;
    auto* made = new Function{known, name, 48 * 1024};
    state().functions.push_back(made);
    *function = reinterpret_cast<CUfunction>(made);
    return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    if (int code = enter("cuFuncSetAttribute", std::to_string(value))) return code;
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value > 232'448)
        return kInvalidValue;
    reinterpret_cast<Function*>(function)->most_shared = value;
    return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                        void** arguments, void** extra) {
    const auto* f = reinterpret_cast<Function*>(function);
    if (int code = enter("cuLaunchKernel", f->name)) return code;
    Stream* s = stream_of(stream);
    const bool empty = grid_x * grid_y * grid_z * block_x * block_y * block_z == 0;
    if (!s || extra || empty || block_x * block_y * block_z > 1024 || grid_y > 65535 ||
        grid_z > 65535 || static_cast<int>(shared_bytes) > f->most_shared)
        return kInvalidValue;
    // Arguments are read at once, as the driver does.
    std::vector<uint64_t> args;
    const size_t count = f->name == "add_words" ? 3 : 0;
    for (size_t i = 0; i < count; ++i) args.push_back(*static_cast<uint64_t*>(arguments[i]));
    s->queue.emplace_back([name = f->name, args] { run_kernel(name, args); });
    return CUDA_SUCCESS;
}

}  // extern "C"
