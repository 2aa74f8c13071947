// SPDX-License-Identifier: Apache-2.0
// The part of librocm_smi64 that Cleave calls, declared by hand so that the build needs no ROCm;
// where AMD's rocm_smi.h is present a test compiles the same lists against it. Names, numbers and
// signatures: include/rocm_smi/rocm_smi.h of ROCm SMI (github.com/ROCm/rocm_smi_lib, rocm-6.4), the
// same from ROCm 5 on.
#pragma once

#include <cstdint>

// X(function, parameters); all return rsmi_status_t.
#define CLEAVE_ROCM_SMI_FUNCTIONS(X)                                                    \
    X(rsmi_init, (uint64_t flags))                                                      \
    X(rsmi_shut_down, ())                                                               \
    X(rsmi_status_string, (rsmi_status_t status, const char** text))                    \
    X(rsmi_num_monitor_devices, (uint32_t* count))                                      \
    X(rsmi_dev_pci_id_get, (uint32_t device, uint64_t* place))                          \
    X(rsmi_topo_get_link_type,                                                          \
      (uint32_t source, uint32_t destination, uint64_t* hops, RSMI_IO_LINK_TYPE* type)) \
    X(rsmi_minmax_bandwidth_get,                                                        \
      (uint32_t source, uint32_t destination, uint64_t* least, uint64_t* most))

// X(constant, value).
#define CLEAVE_ROCM_SMI_CONSTANTS(X)  \
    X(RSMI_STATUS_SUCCESS, 0)         \
    X(RSMI_IOLINK_TYPE_PCIEXPRESS, 1) \
    X(RSMI_IOLINK_TYPE_XGMI, 2)

namespace cleave::runtime::rocm_smi {

// Names are those of the vendor's headers.
// NOLINTBEGIN(readability-identifier-naming,bugprone-macro-parentheses)

using rsmi_status_t = int;
using RSMI_IO_LINK_TYPE = int;

#define CLEAVE_CONSTANT(name, value) inline constexpr int name = value;
CLEAVE_ROCM_SMI_CONSTANTS(CLEAVE_CONSTANT)
#undef CLEAVE_CONSTANT

struct Functions {
#define CLEAVE_MEMBER(name, parameters) rsmi_status_t(*name) parameters = nullptr;
    CLEAVE_ROCM_SMI_FUNCTIONS(CLEAVE_MEMBER)
#undef CLEAVE_MEMBER
};

// NOLINTEND(readability-identifier-naming,bugprone-macro-parentheses)

}  // namespace cleave::runtime::rocm_smi
