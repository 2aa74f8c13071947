// SPDX-License-Identifier: Apache-2.0
// What the AMDGPU compiler and the reader of its code objects share.
#pragma once

#include <memory>

#include <llvm/MC/MCSubtargetInfo.h>

namespace cleave::llvm_backend {

using namespace llvm;

inline constexpr const char* kAmdgpuTriple = "amdgcn-amd-amdhsa";

// Null for a processor that LLVM does not know.
std::unique_ptr<MCSubtargetInfo> amdgpu_subtarget(const char* arch);

}  // namespace cleave::llvm_backend
