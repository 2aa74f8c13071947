// SPDX-License-Identifier: Apache-2.0
// The part of libnccl and librccl that Cleave calls, declared by hand so that the build needs
// neither; RCCL has NCCL's names, numbers and signatures. The lists are texts: here they become
// types and function pointers, and where nccl.h is present a test compiles the same texts against
// it. Source: NCCL user guide, "NCCL API" (docs.nvidia.com/deeplearning/nccl/user-guide).
#pragma once

#include <cstddef>

// X(function, parameters); all return ncclResult_t.
#define CLEAVE_NCCL_FUNCTIONS(X)                                                                \
    X(ncclGetVersion, (int* version))                                                           \
    X(ncclGetUniqueId, (ncclUniqueId * id))                                                     \
    X(ncclCommInitRankConfig,                                                                   \
      (ncclComm_t * communicator, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config))  \
    X(ncclCommFinalize, (ncclComm_t communicator))                                              \
    X(ncclCommDestroy, (ncclComm_t communicator))                                               \
    X(ncclCommAbort, (ncclComm_t communicator))                                                 \
    X(ncclCommGetAsyncError, (ncclComm_t communicator, ncclResult_t * error))                   \
    X(ncclGroupStart, ())                                                                       \
    X(ncclGroupEnd, ())                                                                         \
    X(ncclAllReduce, (const void* source, void* destination, size_t count, ncclDataType_t type, \
                      ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream))     \
    X(ncclAllGather, (const void* source, void* destination, size_t count, ncclDataType_t type, \
                      ncclComm_t communicator, cudaStream_t stream))                            \
    X(ncclBroadcast, (const void* source, void* destination, size_t count, ncclDataType_t type, \
                      int root, ncclComm_t communicator, cudaStream_t stream))                  \
    X(ncclSend, (const void* source, size_t count, ncclDataType_t type, int peer,               \
                 ncclComm_t communicator, cudaStream_t stream))                                 \
    X(ncclRecv, (void* destination, size_t count, ncclDataType_t type, int peer,                \
                 ncclComm_t communicator, cudaStream_t stream))

// X(enumerator, value, its type).
#define CLEAVE_NCCL_CONSTANTS(X)               \
    X(ncclSuccess, 0, ncclResult_t)            \
    X(ncclUnhandledCudaError, 1, ncclResult_t) \
    X(ncclSystemError, 2, ncclResult_t)        \
    X(ncclInProgress, 7, ncclResult_t)         \
    X(ncclSum, 0, ncclRedOp_t)                 \
    X(ncclUint8, 1, ncclDataType_t)            \
    X(ncclFloat16, 6, ncclDataType_t)          \
    X(ncclFloat32, 7, ncclDataType_t)          \
    X(ncclBfloat16, 9, ncclDataType_t)

namespace cleave::runtime::nccl {

// Names are those of the vendor's headers.
// NOLINTBEGIN(readability-identifier-naming,bugprone-macro-parentheses)

// Enumerations are ints in the C ABI; handles are pointers.
using ncclResult_t = int;
using ncclRedOp_t = int;
using ncclDataType_t = int;
using ncclComm_t = struct CommunicatorTag*;
using cudaStream_t = struct StreamTag*;  // hipStream_t in RCCL
struct ncclUniqueId {
    char internal[128];
};

// As it was in NCCL 2.14, the first to have it: a newer library reads `size` bytes, goes by
// `version`, and takes its own settings for what came later (NCCL's sources, init.cc,
// parseCommConfig).
struct ncclConfig_t {
    size_t size = sizeof(ncclConfig_t);
    unsigned int magic = 0xcafebeef;
    unsigned int version = 21400;
    int blocking = 0;
};

#define CLEAVE_CONSTANT(name, value, type) inline constexpr type name = value;
CLEAVE_NCCL_CONSTANTS(CLEAVE_CONSTANT)
#undef CLEAVE_CONSTANT

struct Functions {
#define CLEAVE_MEMBER(name, parameters) ncclResult_t(*name) parameters = nullptr;
    CLEAVE_NCCL_FUNCTIONS(CLEAVE_MEMBER)
#undef CLEAVE_MEMBER
    const char* (*ncclGetErrorString)(ncclResult_t) = nullptr;
    const char* (*ncclGetLastError)(ncclComm_t) = nullptr;
};

// NOLINTEND(readability-identifier-naming,bugprone-macro-parentheses)

}  // namespace cleave::runtime::nccl
