// SPDX-License-Identifier: Apache-2.0
// libcuda as it was opened: its functions, and its errors as ours.
#pragma once

#include <string>
#include <utility>

#include "runtime/base/dynamic_library.h"
#include "runtime/drivers/cuda/symbols.h"
#include "runtime/drivers/gpu/gpu_driver.h"

namespace cleave::runtime {

struct CudaLibrary {
    // Never closed: its threads and exit handlers run on after the last context.
    explicit CudaLibrary(DynamicLibrary opened) : library(kept_open(std::move(opened))) {}

    // The first symbol that is missing, or null.
    const char* resolve() {
#define CLEAVE_RESOLVE(name, parameters)                                      \
    call.name = reinterpret_cast<decltype(call.name)>(library.symbol(#name)); \
    if (!call.name) return #name;
        CLEAVE_CUDA_FUNCTIONS(CLEAVE_RESOLVE)
#undef CLEAVE_RESOLVE
#define CLEAVE_RESOLVE(name, parameters) \
    call.name = reinterpret_cast<decltype(call.name)>(library.symbol(#name));
        CLEAVE_CUDA_NEWER_FUNCTIONS(CLEAVE_RESOLVE)
#undef CLEAVE_RESOLVE
        return nullptr;
    }

    std::string error(cuda::CUresult code) const {
        const char *name = nullptr, *text = nullptr;
        call.cuGetErrorName(code, &name);
        call.cuGetErrorString(code, &text);
        if (code == cuda::CUDA_ERROR_STUB_LIBRARY) {  // which has no texts either
            name = "CUDA_ERROR_STUB_LIBRARY";
            text = "the toolkit's stub to link with, no driver";
        }
        return vendor_error(name, text, code);
    }

    void check(cuda::CUresult code, const char* function, const std::string& device) const {
        if (code != cuda::CUDA_SUCCESS) throw VendorError(function, error(code), device);
    }

    DynamicLibrary& library;
    cuda::Functions call;
};

}  // namespace cleave::runtime
