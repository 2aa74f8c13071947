// SPDX-License-Identifier: Apache-2.0
// The part of libnvidia-ml that Cleave calls, declared by hand so that the build needs no toolkit;
// where NVIDIA's nvml.h is present a test compiles the same lists against it. Names, numbers and
// signatures: NVML API reference (docs.nvidia.com/deploy/nvml-api).
#pragma once

#include <cstdint>

// X(function, parameters); all return nvmlReturn_t.
#define CLEAVE_NVML_FUNCTIONS(X)                                                           \
    X(nvmlInit_v2, ())                                                                     \
    X(nvmlShutdown, ())                                                                    \
    X(nvmlDeviceGetHandleByPciBusId_v2, (const char* pci, nvmlDevice_t* device))           \
    X(nvmlDeviceGetMaxPcieLinkGeneration, (nvmlDevice_t device, unsigned int* generation)) \
    X(nvmlDeviceGetMaxPcieLinkWidth, (nvmlDevice_t device, unsigned int* width))           \
    X(nvmlDeviceGetNvLinkState,                                                            \
      (nvmlDevice_t device, unsigned int link, nvmlEnableState_t* active))                 \
    X(nvmlDeviceGetNvLinkRemoteDeviceType,                                                 \
      (nvmlDevice_t device, unsigned int link, nvmlIntNvLinkDeviceType_t* type))           \
    X(nvmlDeviceGetNvLinkRemotePciInfo_v2,                                                 \
      (nvmlDevice_t device, unsigned int link, nvmlPciInfo_t* pci))                        \
    X(nvmlDeviceGetFieldValues, (nvmlDevice_t device, int count, nvmlFieldValue_t* values))

// X(constant, value).
#define CLEAVE_NVML_CONSTANTS(X)         \
    X(NVML_SUCCESS, 0)                   \
    X(NVML_FEATURE_ENABLED, 1)           \
    X(NVML_NVLINK_DEVICE_TYPE_GPU, 0)    \
    X(NVML_NVLINK_DEVICE_TYPE_SWITCH, 2) \
    X(NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON, 90)

namespace cleave::runtime::nvml {

// Names are those of the vendor's headers.
// NOLINTBEGIN(readability-identifier-naming,bugprone-macro-parentheses)

using nvmlReturn_t = int;
using nvmlEnableState_t = int;
using nvmlIntNvLinkDeviceType_t = int;
using nvmlDevice_t = struct NvmlDeviceTag*;
struct nvmlPciInfo_t {
    char busIdLegacy[16];
    unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
};
struct nvmlFieldValue_t {
    unsigned int fieldId, scopeId;
    long long timestamp, latencyUsec;
    int valueType;
    nvmlReturn_t nvmlReturn;
    union {
        double dVal;
        unsigned int uiVal;
        unsigned long long ullVal;
    } value;
};

#define CLEAVE_CONSTANT(name, value) inline constexpr int name = value;
CLEAVE_NVML_CONSTANTS(CLEAVE_CONSTANT)
#undef CLEAVE_CONSTANT

struct Functions {
#define CLEAVE_MEMBER(name, parameters) nvmlReturn_t(*name) parameters = nullptr;
    CLEAVE_NVML_FUNCTIONS(CLEAVE_MEMBER)
#undef CLEAVE_MEMBER
    const char* (*nvmlErrorString)(nvmlReturn_t) = nullptr;
};

// NOLINTEND(readability-identifier-naming,bugprone-macro-parentheses)

}  // namespace cleave::runtime::nvml
