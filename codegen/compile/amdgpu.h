// SPDX-License-Identifier: Apache-2.0
// Clang for AMD GPUs, in this process: with neither ROCm nor its headers, so that plans for AMD
// devices compile anywhere, and where hipRTC is missing or too old for the arch.
#pragma once

#include <memory>

#include "codegen/compile/backend.h"

namespace cleave::codegen {

// UserError when libcleave_llvm is missing or does not know the arch.
std::unique_ptr<KernelCompiler> make_amdgpu_compiler(const GpuArch& arch);

GpuCompilerInfo amdgpu_clang_info();

}  // namespace cleave::codegen
