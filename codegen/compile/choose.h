// SPDX-License-Identifier: Apache-2.0
// Which compiler compiles for which device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "codegen/compile/backend.h"
#include "codegen/compile/compiler.h"

namespace cleave::codegen {

// Of a Program's arch: Clang for hosts and for "simt:ARCH", make_gpu_compiler for GPUs.
std::unique_ptr<KernelCompiler> choose_compiler(const std::string& arch,
                                                const CompileOptions& options);

// sm_*: NVRTC. gfx*: hipRTC where it is found and knows the arch, else Clang.
// `options.gpu_compiler` names another.
std::unique_ptr<KernelCompiler> make_gpu_compiler(const GpuArch& arch,
                                                  const CompileOptions& options);

// Of every compiler of GPUs, for `cleave doctor`.
std::vector<GpuCompilerInfo> gpu_compiler_infos(const CompileOptions& options);

}  // namespace cleave::codegen
