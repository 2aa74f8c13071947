// SPDX-License-Identifier: Apache-2.0
// The part of libamdhip64 that Cleave calls, declared by hand so that the build needs no ROCm. The
// lists are texts: here they become types and function pointers of cleave::runtime::hip, and where
// AMD's hip_runtime_api.h is present a test compiles the same texts against it. Names, numbers and
// signatures: HIP runtime API reference (rocm.docs.amd.com/projects/HIP), of ROCm 5 and later;
// attributes were renumbered between ROCm 4 and 5.
#pragma once

#include <cstddef>
#include <cstdint>

// X(function, parameters); all return hipError_t. Two of them that return texts are in Functions
// alone.
#define CLEAVE_HIP_FUNCTIONS(X)                                                                   \
    X(hipInit, (unsigned int flags))                                                              \
    X(hipRuntimeGetVersion, (int* version))                                                       \
    X(hipGetDeviceCount, (int* count))                                                            \
    X(hipDeviceGetName, (char* name, int length, hipDevice_t device))                             \
    X(hipDeviceGetPCIBusId, (char* text, int length, int device))                                 \
    X(hipDeviceTotalMem, (size_t* bytes, hipDevice_t device))                                     \
    X(hipDeviceGetAttribute, (int* value, hipDeviceAttribute_t attribute, int device))            \
    X(hipDeviceCanAccessPeer, (int* can, int device, int peer))                                   \
    X(hipDeviceEnablePeerAccess, (int peer, unsigned int flags))                                  \
    X(hipSetDevice, (int device))                                                                 \
    X(hipDeviceReset, ())                                                                         \
    X(hipMemGetInfo, (size_t* free, size_t* total))                                               \
    X(hipMalloc, (void** address, size_t bytes))                                                  \
    X(hipExtMallocWithFlags, (void** address, size_t bytes, unsigned int flags))                  \
    X(hipFree, (void* address))                                                                   \
    X(hipHostMalloc, (void** memory, size_t bytes, unsigned int flags))                           \
    X(hipHostFree, (void* memory))                                                                \
    X(hipMemsetAsync, (void* address, int value, size_t bytes, hipStream_t stream))               \
    X(hipMemcpyAsync, (void* destination, const void* source, size_t bytes, hipMemcpyKind kind,   \
                       hipStream_t stream))                                                       \
    X(hipMemcpy2DAsync,                                                                           \
      (void* destination, size_t destination_pitch, const void* source, size_t source_pitch,      \
       size_t width, size_t height, hipMemcpyKind kind, hipStream_t stream))                      \
    X(hipStreamCreateWithFlags, (hipStream_t * stream, unsigned int flags))                       \
    X(hipStreamDestroy, (hipStream_t stream))                                                     \
    X(hipStreamQuery, (hipStream_t stream))                                                       \
    X(hipEventCreateWithFlags, (hipEvent_t * event, unsigned flags))                              \
    X(hipEventDestroy, (hipEvent_t event))                                                        \
    X(hipEventRecord, (hipEvent_t event, hipStream_t stream))                                     \
    X(hipEventQuery, (hipEvent_t event))                                                          \
    X(hipEventElapsedTime, (float* milliseconds, hipEvent_t from, hipEvent_t to))                 \
    X(hipStreamBeginCapture, (hipStream_t stream, hipStreamCaptureMode mode))                     \
    X(hipStreamEndCapture, (hipStream_t stream, hipGraph_t * graph))                              \
    X(hipGraphInstantiate, (hipGraphExec_t * exec, hipGraph_t graph, hipGraphNode_t * error_node, \
                            char* log, size_t log_bytes))                                         \
    X(hipGraphLaunch, (hipGraphExec_t exec, hipStream_t stream))                                  \
    X(hipGraphExecDestroy, (hipGraphExec_t exec))                                                 \
    X(hipGraphDestroy, (hipGraph_t graph))                                                        \
    X(hipModuleLoadData, (hipModule_t * module, const void* image))                               \
    X(hipModuleUnload, (hipModule_t module))                                                      \
    X(hipModuleGetFunction, (hipFunction_t * function, hipModule_t module, const char* name))     \
    X(hipFuncGetAttribute, (int* value, hipFunction_attribute attribute, hipFunction_t function)) \
    X(hipModuleLaunchKernel,                                                                      \
      (hipFunction_t function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,     \
       unsigned int block_x, unsigned int block_y, unsigned int block_z,                          \
       unsigned int shared_bytes, hipStream_t stream, void** arguments, void** extra))

// Of ROCm 5.2 and later: all or none of them are used.
#define CLEAVE_HIP_POOL_FUNCTIONS(X)                                                          \
    X(hipMemPoolCreate, (hipMemPool_t * pool, const hipMemPoolProps* properties))             \
    X(hipMemPoolDestroy, (hipMemPool_t pool))                                                 \
    X(hipMemPoolSetAccess, (hipMemPool_t pool, const hipMemAccessDesc* access, size_t count)) \
    X(hipMallocFromPoolAsync, (void** address, size_t bytes, hipMemPool_t pool, hipStream_t stream))

// X(enumerator, value, its type).
#define CLEAVE_HIP_CONSTANTS(X)                                            \
    X(hipSuccess, 0, hipError_t)                                           \
    X(hipErrorOutOfMemory, 2, hipError_t)                                  \
    X(hipErrorNoDevice, 100, hipError_t)                                   \
    X(hipErrorPeerAccessAlreadyEnabled, 704, hipError_t)                   \
    X(hipErrorInvalidDevice, 101, hipError_t)                              \
    X(hipErrorInvalidImage, 200, hipError_t)                               \
    X(hipErrorNoBinaryForGpu, 209, hipError_t)                             \
    X(hipErrorNotReady, 600, hipError_t)                                   \
    X(hipStreamCaptureModeThreadLocal, 1, hipStreamCaptureMode)            \
    X(hipMemcpyHostToDevice, 1, hipMemcpyKind)                             \
    X(hipMemcpyDeviceToHost, 2, hipMemcpyKind)                             \
    X(hipMemcpyDeviceToDevice, 3, hipMemcpyKind)                           \
    X(hipDeviceAttributeClockRate, 5, hipDeviceAttribute_t)                \
    X(hipDeviceAttributeMaxGridDimX, 29, hipDeviceAttribute_t)             \
    X(hipDeviceAttributeMaxGridDimY, 30, hipDeviceAttribute_t)             \
    X(hipDeviceAttributeMaxGridDimZ, 31, hipDeviceAttribute_t)             \
    X(hipDeviceAttributeMaxThreadsPerBlock, 56, hipDeviceAttribute_t)      \
    X(hipDeviceAttributeMemoryBusWidth, 59, hipDeviceAttribute_t)          \
    X(hipDeviceAttributeMemoryClockRate, 60, hipDeviceAttribute_t)         \
    X(hipDeviceAttributeMultiprocessorCount, 63, hipDeviceAttribute_t)     \
    X(hipDeviceAttributeMaxRegistersPerBlock, 71, hipDeviceAttribute_t)    \
    X(hipDeviceAttributeMaxSharedMemoryPerBlock, 74, hipDeviceAttribute_t) \
    X(hipDeviceAttributeWarpSize, 87, hipDeviceAttribute_t)                \
    X(hipDeviceAttributeMemoryPoolsSupported, 88, hipDeviceAttribute_t)    \
    X(HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0, hipFunction_attribute)  \
    X(hipMemAllocationTypePinned, 1, hipMemAllocationType)                 \
    X(hipMemLocationTypeDevice, 1, hipMemLocationType)                     \
    X(hipMemAccessFlagsProtReadWrite, 3, hipMemAccessFlags)

namespace cleave::runtime::hip {

// Names are those of the vendor's headers.
// NOLINTBEGIN(readability-identifier-naming,bugprone-macro-parentheses)

// Enumerations are ints in the C ABI; handles are pointers.
using hipError_t = int;
using hipDevice_t = int;
using hipDeviceAttribute_t = int;
using hipFunction_attribute = int;
using hipMemcpyKind = int;
using hipStreamCaptureMode = int;
using hipStream_t = struct StreamTag*;
using hipModule_t = struct ModuleTag*;
using hipEvent_t = struct EventTag*;
using hipGraph_t = struct GraphTag*;
using hipGraphExec_t = struct GraphExecTag*;
using hipGraphNode_t = struct GraphNodeTag*;
using hipFunction_t = struct FunctionTag*;
using hipMemAllocationType = int;
using hipMemAllocationHandleType = int;
using hipMemLocationType = int;
using hipMemAccessFlags = int;
using hipMemPool_t = struct MemoryPoolTag*;
struct hipMemLocation {
    hipMemLocationType type;
    int id;
};
struct hipMemPoolProps {
    hipMemAllocationType allocType;
    hipMemAllocationHandleType handleTypes;
    hipMemLocation location;
    void* win32SecurityAttributes;
    unsigned char reserved[64];  // zero; newer versions have fields here whose zero is the default
};
struct hipMemAccessDesc {
    hipMemLocation location;
    hipMemAccessFlags flags;
};
struct hipUUID {
    char bytes[16];
};
inline constexpr hipDeviceAttribute_t kWallClockRate =
    10017;  // hipDeviceAttributeWallClockRate, of ROCm 5.3 and later
inline constexpr unsigned int kStreamNonBlocking = 1;   // hipStreamNonBlocking, a macro
inline constexpr unsigned int kEventDisableTiming = 2;  // hipEventDisableTiming, a macro
inline constexpr unsigned int kMallocFinegrained = 1;   // hipDeviceMallocFinegrained, a macro
inline constexpr unsigned int kHostMallocPortable = 1, kHostMallocMapped = 2,
                              kHostMallocCoherent = 0x40000000;  // hipHostMalloc..., macros

#define CLEAVE_CONSTANT(name, value, type) inline constexpr type name = value;
CLEAVE_HIP_CONSTANTS(CLEAVE_CONSTANT)
#undef CLEAVE_CONSTANT

struct Functions {
#define CLEAVE_MEMBER(name, parameters) hipError_t(*name) parameters = nullptr;
    CLEAVE_HIP_FUNCTIONS(CLEAVE_MEMBER)
#undef CLEAVE_MEMBER
    // Null where one is absent.
#define CLEAVE_MEMBER(name, parameters) hipError_t(*name) parameters = nullptr;
    CLEAVE_HIP_POOL_FUNCTIONS(CLEAVE_MEMBER)
#undef CLEAVE_MEMBER
    const char* (*hipGetErrorName)(hipError_t error) = nullptr;
    const char* (*hipGetErrorString)(hipError_t error) = nullptr;
    // Not in every version: null where absent.
    hipError_t (*hipDeviceGetUuid)(hipUUID* uuid, hipDevice_t device) = nullptr;
    hipError_t (*hipGraphUpload)(hipGraphExec_t exec, hipStream_t stream) = nullptr;
    // The struct's layout differs between versions (its name is hipGetDevicePropertiesR0600 from
    // ROCm 6 on), its size is below 4 KiB in all; only the architecture's name is taken from it,
    // which no attribute has.
    hipError_t (*properties)(void* properties, int device) = nullptr;
};

// NOLINTEND(readability-identifier-naming,bugprone-macro-parentheses)

}  // namespace cleave::runtime::hip
