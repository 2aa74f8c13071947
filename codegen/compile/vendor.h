// SPDX-License-Identifier: Apache-2.0
// NVRTC (to cubins) and hipRTC (to code objects), in worker processes (worker_pool.h). Where their
// libraries are looked for: vendor_libraries.h.
#pragma once

#include <memory>
#include <string>

#include "codegen/compile/backend.h"
#include "codegen/compile/compiler.h"
#include "runtime/base/errors.h"

namespace cleave::codegen {

// What the user named is not there: no other compiler takes its place.
class MisnamedCompiler : public UserError {
public:
    using UserError::UserError;
};

// UserError listing every name tried when the library is missing, and naming the arch when the
// library is there but does not know it. NVRTC: the first library found whose objects the driver
// loads (`options.drivers`); UserError with the driver's version and those found where it loads
// none's.
std::unique_ptr<KernelCompiler> make_nvrtc_compiler(const GpuArch& arch,
                                                    const CompileOptions& options);
std::unique_ptr<KernelCompiler> make_hiprtc_compiler(const GpuArch& arch,
                                                     const CompileOptions& options);

GpuCompilerInfo nvrtc_info(const CompileOptions& options);
GpuCompilerInfo hiprtc_info(const CompileOptions& options);
// With the architectures that Cleave has kernels for and this hipRTC knows. Each is asked with an
// empty kernel, once a version.
GpuCompilerInfo hiprtc_info_with_archs(const CompileOptions& options);

}  // namespace cleave::codegen
