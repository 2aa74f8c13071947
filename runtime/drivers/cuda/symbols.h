// SPDX-License-Identifier: Apache-2.0
// The part of libcuda that Cleave calls, declared by hand so that the build needs no toolkit. The
// lists are texts: here they become types and function pointers of cleave::runtime::cuda, and where
// NVIDIA's cuda.h is present a test compiles the same texts against it. Names, numbers and
// signatures: CUDA Driver API reference (docs.nvidia.com/cuda/cuda-driver-api).
#pragma once

#include <cstddef>
#include <cstdint>

// X(function, parameters); all return CUresult.
#define CLEAVE_CUDA_FUNCTIONS(X)                                                                  \
    X(cuInit, (unsigned int flags))                                                               \
    X(cuDriverGetVersion, (int* version))                                                         \
    X(cuGetErrorName, (CUresult error, const char** text))                                        \
    X(cuGetErrorString, (CUresult error, const char** text))                                      \
    X(cuDeviceGetCount, (int* count))                                                             \
    X(cuDeviceGet, (CUdevice * device, int ordinal))                                              \
    X(cuDeviceGetName, (char* name, int length, CUdevice device))                                 \
    X(cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device))                                       \
    X(cuDeviceGetPCIBusId, (char* text, int length, CUdevice device))                             \
    X(cuDeviceTotalMem_v2, (size_t* bytes, CUdevice device))                                      \
    X(cuDeviceGetAttribute, (int* value, CUdevice_attribute attribute, CUdevice device))          \
    X(cuDeviceCanAccessPeer, (int* can, CUdevice device, CUdevice peer))                          \
    X(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                           \
    X(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                            \
    X(cuCtxSetCurrent, (CUcontext context))                                                       \
    X(cuCtxEnablePeerAccess, (CUcontext peer, unsigned int flags))                                \
    X(cuMemGetInfo_v2, (size_t* free, size_t* total))                                             \
    X(cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes))                                       \
    X(cuMemFree_v2, (CUdeviceptr address))                                                        \
    X(cuMemPoolCreate, (CUmemoryPool * pool, const CUmemPoolProps* properties))                   \
    X(cuMemPoolDestroy, (CUmemoryPool pool))                                                      \
    X(cuMemPoolSetAccess, (CUmemoryPool pool, const CUmemAccessDesc* access, size_t count))       \
    X(cuMemAllocFromPoolAsync,                                                                    \
      (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream))                  \
    X(cuMemHostAlloc, (void** memory, size_t bytes, unsigned int flags))                          \
    X(cuMemFreeHost, (void* memory))                                                              \
    X(cuMemsetD8Async, (CUdeviceptr address, unsigned char value, size_t count, CUstream stream)) \
    X(cuMemcpyHtoDAsync_v2,                                                                       \
      (CUdeviceptr destination, const void* source, size_t bytes, CUstream stream))               \
    X(cuMemcpyDtoHAsync_v2,                                                                       \
      (void* destination, CUdeviceptr source, size_t bytes, CUstream stream))                     \
    X(cuMemcpyDtoDAsync_v2,                                                                       \
      (CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream))               \
    X(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D* copy, CUstream stream))                           \
    X(cuStreamCreate, (CUstream * stream, unsigned int flags))                                    \
    X(cuStreamDestroy_v2, (CUstream stream))                                                      \
    X(cuStreamQuery, (CUstream stream))                                                           \
    X(cuEventCreate, (CUevent * event, unsigned int flags))                                       \
    X(cuEventDestroy_v2, (CUevent event))                                                         \
    X(cuEventRecord, (CUevent event, CUstream stream))                                            \
    X(cuEventQuery, (CUevent event))                                                              \
    X(cuEventElapsedTime, (float* milliseconds, CUevent from, CUevent to))                        \
    X(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode))                       \
    X(cuStreamEndCapture, (CUstream stream, CUgraph * graph))                                     \
    X(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags)) \
    X(cuGraphUpload, (CUgraphExec exec, CUstream stream))                                         \
    X(cuGraphLaunch, (CUgraphExec exec, CUstream stream))                                         \
    X(cuGraphExecDestroy, (CUgraphExec exec))                                                     \
    X(cuGraphDestroy, (CUgraph graph))                                                            \
    X(cuModuleLoadData, (CUmodule * module, const void* image))                                   \
    X(cuModuleUnload, (CUmodule module))                                                          \
    X(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char* name))            \
    X(cuFuncGetAttribute, (int* value, CUfunction_attribute attribute, CUfunction function))      \
    X(cuFuncSetAttribute, (CUfunction function, CUfunction_attribute attribute, int value))       \
    X(cuLaunchKernel,                                                                             \
      (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,        \
       unsigned int block_x, unsigned int block_y, unsigned int block_z,                          \
       unsigned int shared_bytes, CUstream stream, void** arguments, void** extra))

// X(function, parameters) of newer drivers, which may be absent.
#define CLEAVE_CUDA_NEWER_FUNCTIONS(X) \
    X(cuLaunchKernelEx,                \
      (const CUlaunchConfig* config, CUfunction function, void** arguments, void** extra))

// X(enumerator, value, its type).
#define CLEAVE_CUDA_CONSTANTS(X)                                                     \
    X(CUDA_SUCCESS, 0, CUresult)                                                     \
    X(CUDA_ERROR_INVALID_VALUE, 1, CUresult)                                         \
    X(CUDA_ERROR_OUT_OF_MEMORY, 2, CUresult)                                         \
    X(CUDA_ERROR_STUB_LIBRARY, 34, CUresult)                                         \
    X(CUDA_ERROR_NO_DEVICE, 100, CUresult)                                           \
    X(CUDA_ERROR_INVALID_IMAGE, 200, CUresult)                                       \
    X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209, CUresult)                                   \
    X(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222, CUresult)                             \
    X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704, CUresult)                         \
    X(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1, CUdevice_attribute)              \
    X(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 5, CUdevice_attribute)                     \
    X(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 6, CUdevice_attribute)                     \
    X(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 7, CUdevice_attribute)                     \
    X(CU_DEVICE_ATTRIBUTE_WARP_SIZE, 10, CUdevice_attribute)                         \
    X(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 12, CUdevice_attribute)           \
    X(CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 13, CUdevice_attribute)                        \
    X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16, CUdevice_attribute)              \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 20, CUdevice_attribute)                      \
    X(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 36, CUdevice_attribute)                 \
    X(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 37, CUdevice_attribute)           \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75, CUdevice_attribute)          \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76, CUdevice_attribute)          \
    X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97, CUdevice_attribute) \
    X(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 115, CUdevice_attribute)           \
    X(CU_MEM_ALLOCATION_TYPE_PINNED, 1, CUmemAllocationType)                         \
    X(CU_MEM_LOCATION_TYPE_DEVICE, 1, CUmemLocationType)                             \
    X(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3, CUmemAccess_flags)                      \
    X(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0, CUfunction_attribute)              \
    X(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8, CUfunction_attribute)      \
    X(CU_COMPUTEMODE_PROHIBITED, 2, CUcomputemode)                                   \
    X(CU_COMPUTEMODE_EXCLUSIVE_PROCESS, 3, CUcomputemode)                            \
    X(CUDA_ERROR_NOT_READY, 600, CUresult)                                           \
    X(CU_STREAM_NON_BLOCKING, 1, CUstream_flags)                                     \
    X(CU_EVENT_DEFAULT, 0, CUevent_flags)                                            \
    X(CU_EVENT_DISABLE_TIMING, 2, CUevent_flags)                                     \
    X(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 1, CUstreamCaptureMode)                   \
    X(CU_MEMORYTYPE_HOST, 1, CUmemorytype)                                           \
    X(CU_MEMORYTYPE_DEVICE, 2, CUmemorytype)                                         \
    X(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, 6, CUlaunchAttributeID)

namespace cleave::runtime::cuda {

// Names are those of the vendor's headers.
// NOLINTBEGIN(readability-identifier-naming,bugprone-macro-parentheses)

// Enumerations are ints in the C ABI; handles are pointers.
using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUdevice_attribute = int;
using CUfunction_attribute = int;
using CUstream_flags = int;
using CUmemorytype = int;
using CUevent_flags = int;
using CUstreamCaptureMode = int;
using CUmemAllocationType = int;
using CUmemAllocationHandleType = int;
using CUmemLocationType = int;
using CUmemAccess_flags = int;
using CUlaunchAttributeID = int;
using CUcomputemode = int;
using CUmemoryPool = struct MemoryPoolTag*;
using CUcontext = struct ContextTag*;
using CUstream = struct StreamTag*;
using CUmodule = struct ModuleTag*;
using CUevent = struct EventTag*;
using CUgraph = struct GraphTag*;
using CUgraphExec = struct GraphExecTag*;
using CUfunction = struct FunctionTag*;
inline constexpr unsigned int kHostAllocPortable = 1;  // CU_MEMHOSTALLOC_PORTABLE, a macro
struct CUuuid {
    char bytes[16];
};
struct CUmemLocation {
    CUmemLocationType type;
    int id;
};
struct CUmemPoolProps {
    CUmemAllocationType allocType;
    CUmemAllocationHandleType handleTypes;
    CUmemLocation location;
    void* win32SecurityAttributes;
    unsigned char reserved[64];  // zero; newer versions have fields here whose zero is the default
};
struct CUmemAccessDesc {
    CUmemLocation location;
    CUmemAccess_flags flags;
};
union CUlaunchAttributeValue {
    char pad[64];
    int programmaticStreamSerializationAllowed;
};
struct CUlaunchAttribute {
    CUlaunchAttributeID id;
    char pad[8 - sizeof(CUlaunchAttributeID)];
    CUlaunchAttributeValue value;
};
struct CUlaunchConfig {
    unsigned int gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    CUstream hStream;
    CUlaunchAttribute* attrs;
    unsigned int numAttrs;
};
struct CUDA_MEMCPY2D {
    size_t srcXInBytes, srcY;
    CUmemorytype srcMemoryType;
    const void* srcHost;
    CUdeviceptr srcDevice;
    void* srcArray;
    size_t srcPitch;
    size_t dstXInBytes, dstY;
    CUmemorytype dstMemoryType;
    void* dstHost;
    CUdeviceptr dstDevice;
    void* dstArray;
    size_t dstPitch;
    size_t WidthInBytes, Height;
};

#define CLEAVE_CONSTANT(name, value, type) inline constexpr type name = value;
CLEAVE_CUDA_CONSTANTS(CLEAVE_CONSTANT)
#undef CLEAVE_CONSTANT

struct Functions {
#define CLEAVE_MEMBER(name, parameters) CUresult(*name) parameters = nullptr;
    CLEAVE_CUDA_FUNCTIONS(CLEAVE_MEMBER)
    CLEAVE_CUDA_NEWER_FUNCTIONS(CLEAVE_MEMBER)
#undef CLEAVE_MEMBER
};

// NOLINTEND(readability-identifier-naming,bugprone-macro-parentheses)

}  // namespace cleave::runtime::cuda
