// SPDX-License-Identifier: Apache-2.0
// A libamdhip64 that records: see fake_gpu.h.
#include "tests/runtime_fakes/fake_gpu.h"

#include "runtime/drivers/hip/symbols.h"

using namespace cleave::fake;
using namespace cleave::runtime::hip;

namespace {

constexpr hipError_t kInvalidValue = 1, kInvalidDevice = 101, kNotFound = 500;

constexpr Card kCards[] = {{"AMD Instinct MI250X", "0000:C1:00.0", 'a', int64_t{64} << 30},
                           {"AMD Instinct MI250X", "0000:C6:00.0", 'b', int64_t{64} << 30},
                           {"AMD Instinct MI300X", "0000:D1:00.0", 'c', int64_t{192} << 30}};

Stream* stream_of(hipStream_t stream) {
    auto* known = reinterpret_cast<Stream*>(stream);
    return state().streams.count(known) ? known : nullptr;
}
bool is_shown(int device) { return device >= 0 && device < state().visible; }
uintptr_t number(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

}  // namespace

CLEAVE_FAKE_CONTROLS

extern "C" {

const char* hipGetErrorName(hipError_t error) {
    return error == hipErrorOutOfMemory ? "hipErrorOutOfMemory"
           : error == hipErrorNoDevice  ? "hipErrorNoDevice"
                                        : "hipErrorUnknown";
}
const char* hipGetErrorString(hipError_t error) {
    return error == hipErrorNoDevice ? "no ROCm-capable device is detected" : "unknown error";
}
hipError_t hipInit(unsigned int) {
    if (int code = enter("hipInit")) return code;
    return state().visible > 0 ? hipSuccess : hipErrorNoDevice;
}
hipError_t hipRuntimeGetVersion(int* version) {
    *version = 60'240'134;
    return enter("hipRuntimeGetVersion");
}
hipError_t hipGetDeviceCount(int* count) {
    *count = state().visible;
    return enter("hipGetDeviceCount");
}
hipError_t hipDeviceGetName(char* name, int length, hipDevice_t device) {
    if (!is_shown(device)) return kInvalidDevice;
    std::strncpy(name, kCards[device].name, static_cast<size_t>(length));
    return enter("hipDeviceGetName");
}
hipError_t hipDeviceGetUuid(hipUUID* uuid, hipDevice_t device) {
    std::memset(uuid->bytes, kCards[device].uuid, 16);
    return enter("hipDeviceGetUuid");
}
hipError_t hipDeviceGetPCIBusId(char* text, int length, int device) {
    std::strncpy(text, kCards[device].pci, static_cast<size_t>(length));
    return enter("hipDeviceGetPCIBusId");
}
hipError_t hipDeviceTotalMem(size_t* bytes, hipDevice_t device) {
    *bytes = static_cast<size_t>(kCards[device].memory);
    return enter("hipDeviceTotalMem");
}
// The layout is no version's: the architecture's name stands somewhere.
hipError_t hipGetDevicePropertiesR0600(void* properties, int device) {
    const char* arch = device < 2 ? "gfx90a:sramecc+:xnack-" : "gfx942:sramecc+:xnack-";
    std::memcpy(static_cast<char*>(properties) + 1160, arch, std::strlen(arch) + 1);
    return enter("hipGetDevicePropertiesR0600");
}
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int device) {
    const std::map<int, int> values{{hipDeviceAttributeClockRate, 1'700'000},
                                    {hipDeviceAttributeMaxThreadsPerBlock, 1024},
                                    {hipDeviceAttributeMemoryBusWidth, 4096},
                                    {hipDeviceAttributeMemoryClockRate, 1'600'000},
                                    {hipDeviceAttributeMultiprocessorCount, device < 2 ? 110 : 304},
                                    {hipDeviceAttributeMaxRegistersPerBlock, 65536},
                                    {hipDeviceAttributeMaxSharedMemoryPerBlock, 65536},
                                    {hipDeviceAttributeWarpSize, 64}};
    const auto found = values.find(attribute);
    if (found == values.end()) return kInvalidValue;
    *value = found->second;
    return enter("hipDeviceGetAttribute");
}
hipError_t hipDeviceCanAccessPeer(int* can, int device, int peer) {
    *can = device != peer;
    return enter("hipDeviceCanAccessPeer");
}
hipError_t hipDeviceEnablePeerAccess(int peer, unsigned int flags) {
    if (int code = enter("hipDeviceEnablePeerAccess",
                         std::to_string(current_device) + " " + std::to_string(peer)))
        return code;
    if (flags != 0 || !is_shown(peer) || peer == current_device) return kInvalidValue;
    return state().peers.insert({current_device, peer}).second ? hipSuccess
                                                               : hipErrorPeerAccessAlreadyEnabled;
}
hipError_t hipSetDevice(int device) {
    if (!is_shown(device)) return kInvalidDevice;
    current_device = device;
    return hipSuccess;
}
hipError_t hipMemGetInfo(size_t* free, size_t* total) {
    *total = static_cast<size_t>(kCards[current_device].memory);
    *free = *total - static_cast<size_t>(state().used(current_device));
    return enter("hipMemGetInfo");
}
hipError_t hipMalloc(void** address, size_t bytes) {
    if (int code = enter("hipMalloc", std::to_string(bytes))) return code;
    State& s = state();
    if (s.used(current_device) + static_cast<int64_t>(bytes) > kCards[current_device].memory)
        return hipErrorOutOfMemory;
    void* memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!memory) return hipErrorOutOfMemory;
    s.blocks[number(memory)] = {current_device, static_cast<int64_t>(bytes)};
    *address = memory;
    return hipSuccess;
}
hipError_t hipExtMallocWithFlags(void** address, size_t bytes, unsigned int flags) {
    if (int code = enter("hipExtMallocWithFlags", std::to_string(flags))) return code;
    return hipMalloc(address, bytes);
}
hipError_t hipFree(void* address) {
    if (int code = enter("hipFree")) return code;
    auto found = state().blocks.find(number(address));
    if (found == state().blocks.end() || found->second.device != current_device)
        return kInvalidValue;
    state().blocks.erase(found);
    std::free(address);
    return hipSuccess;
}
hipError_t hipHostMalloc(void** memory, size_t bytes, unsigned int) {
    if (int code = enter("hipHostMalloc", std::to_string(bytes))) return code;
    *memory = std::malloc(bytes);
    state().pinned.insert(*memory);
    return hipSuccess;
}
hipError_t hipHostFree(void* memory) {
    if (int code = enter("hipHostFree")) return code;
    if (state().pinned.erase(memory) == 0) return kInvalidValue;
    std::free(memory);
    return hipSuccess;
}
hipError_t hipMemsetAsync(void* address, int value, size_t bytes, hipStream_t stream) {
    if (int code = enter("hipMemsetAsync")) return code;
    Stream* s = stream_of(stream);
    if (!s || !state().holds(number(address), static_cast<int64_t>(bytes), s->device))
        return kInvalidValue;
    s->queue.emplace_back([=] { std::memset(address, value, bytes); });
    return hipSuccess;
}
hipError_t hipMemcpy2DAsync(void* destination, size_t destination_pitch, const void* source,
                            size_t source_pitch, size_t width, size_t height, hipMemcpyKind kind,
                            hipStream_t stream) {
    if (int code = enter("hipMemcpy2DAsync")) return code;
    Stream* s = stream_of(stream);
    if (!s || source_pitch < width || destination_pitch < width) return kInvalidValue;
    const bool in = kind == hipMemcpyHostToDevice;
    const uintptr_t device = number(in ? destination : source);
    const size_t pitch = in ? destination_pitch : source_pitch;
    if (!state().holds(device, static_cast<int64_t>(pitch * (height - 1) + width), s->device))
        return kInvalidValue;
    const Copy copy{number(source), number(destination), source_pitch, destination_pitch, width,
                    height};
    s->queue.emplace_back([copy] { run(copy); });
    return hipSuccess;
}
hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned int flags) {
    if (int code = enter("hipStreamCreateWithFlags", std::to_string(flags))) return code;
    auto* made = new Stream{current_device, {}};
    state().streams.insert(made);
    *stream = reinterpret_cast<hipStream_t>(made);
    return hipSuccess;
}
hipError_t hipStreamDestroy(hipStream_t stream) {
    enter("hipStreamDestroy");
    Stream* s = stream_of(stream);
    if (!s) return kInvalidValue;
    state().streams.erase(s);
    delete s;
    return hipSuccess;
}
hipError_t hipStreamSynchronize(hipStream_t stream) {
    if (int code = enter("hipStreamSynchronize")) return code;
    Stream* s = stream_of(stream);
    if (!s) return kInvalidValue;
    finish(*s);
    return hipSuccess;
}
hipError_t hipModuleLoadData(hipModule_t* module, const void* image) {
    if (int code = enter("hipModuleLoadData")) return code;
    if (!image) return kInvalidValue;
    auto* made = new Module{current_device, static_cast<const char*>(image)};
    state().modules.insert(made);
    *module = reinterpret_cast<hipModule_t>(made);
    return hipSuccess;
}
hipError_t hipModuleUnload(hipModule_t module) {
    if (int code = enter("hipModuleUnload")) return code;
    auto* known = reinterpret_cast<Module*>(module);
    if (state().modules.erase(known) == 0) return kInvalidValue;
    delete known;
    return hipSuccess;
}
// The image is the text of the kernel's name.
hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name) {
    if (int code = enter("hipModuleGetFunction", name)) return code;
    auto* known = reinterpret_cast<Module*>(module);
    if (state().modules.count(known) == 0) return kInvalidValue;
    if (known->image != name) return kNotFound;
    auto* made = new Function{known, name, 64 * 1024};
    state().functions.push_back(made);
    *function = reinterpret_cast<hipFunction_t>(made);
    return hipSuccess;
}
hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned int grid_x, unsigned int grid_y,
                                 unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                 unsigned int block_z, unsigned int shared_bytes,
                                 hipStream_t stream, void** arguments, void** extra) {
    const auto* f = reinterpret_cast<Function*>(function);
    if (int code = enter("hipModuleLaunchKernel", f->name)) return code;
    Stream* s = stream_of(stream);
    const bool empty = grid_x * grid_y * grid_z * block_x * block_y * block_z == 0;
    if (!s || extra || empty || block_x * block_y * block_z > 1024 || shared_bytes > 65536)
        return kInvalidValue;
    // Arguments are read at once, as the runtime does.
    std::vector<uint64_t> args;
    const size_t count = f->name == "add_words" ? 3 : 0;
    for (size_t i = 0; i < count; ++i) args.push_back(*static_cast<uint64_t*>(arguments[i]));
    s->queue.emplace_back([name = f->name, args] { run_kernel(name, args); });
    return hipSuccess;
}

}  // extern "C"
