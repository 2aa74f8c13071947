// SPDX-License-Identifier: Apache-2.0
// libamdhip64 as it was opened: its functions, and its errors as ours.
#pragma once

#include <string>
#include <utility>

#include "runtime/base/dynamic_library.h"
#include "runtime/drivers/gpu/driver_switches.h"
#include "runtime/drivers/gpu/gpu_driver.h"
#include "runtime/drivers/hip/symbols.h"

namespace cleave::runtime {

struct HipLibrary {
    // Never closed: its threads and exit handlers run on after the last context.
    explicit HipLibrary(DynamicLibrary opened) : library(kept_open(std::move(opened))) {}

    // The first symbol that is missing, or null.
    const char* resolve() {
#define CLEAVE_RESOLVE(name, parameters)                                      \
    call.name = reinterpret_cast<decltype(call.name)>(library.symbol(#name)); \
    if (!call.name) return #name;
        CLEAVE_HIP_FUNCTIONS(CLEAVE_RESOLVE)
#undef CLEAVE_RESOLVE
#define CLEAVE_TAKE(name, parameters) take(call.name, #name);
        CLEAVE_HIP_POOL_FUNCTIONS(CLEAVE_TAKE)
#undef CLEAVE_TAKE
        take(call.hipGetErrorName, "hipGetErrorName");
        take(call.hipGetErrorString, "hipGetErrorString");
        take(call.hipDeviceGetUuid, "hipDeviceGetUuid");
        take(call.hipGraphUpload, "hipGraphUpload");
        take(call.properties, "hipGetDevicePropertiesR0600");
        if (!call.properties) take(call.properties, "hipGetDeviceProperties");
        if (!call.hipGetErrorName || !call.hipGetErrorString) return "hipGetErrorName";
        return call.properties ? nullptr : "hipGetDeviceProperties";
    }

    bool has_pools() const {
        return use_pools && call.hipMemPoolCreate && call.hipMemPoolDestroy &&
               call.hipMemPoolSetAccess && call.hipMallocFromPoolAsync;
    }

    std::string error(hip::hipError_t code) const {
        return vendor_error(call.hipGetErrorName(code), call.hipGetErrorString(code), code);
    }

    void check(hip::hipError_t code, const char* function, const std::string& device) const {
        if (code != hip::hipSuccess) throw VendorError(function, error(code), device);
    }

    DynamicLibrary& library;
    hip::Functions call;
    bool use_pools = wants_hip_pools();

private:
    template <class Function>
    void take(Function& function, const char* name) {
        function = reinterpret_cast<Function>(library.symbol(name));
    }
};

}  // namespace cleave::runtime
