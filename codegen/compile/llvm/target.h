// SPDX-License-Identifier: Apache-2.0
// What the parts of libcleave_llvm share: one-time initialisation of its targets.
#pragma once

#include <string>

namespace cleave::llvm_backend {

// Registers the native target and AMDGPU: once per process, from any thread.
void initialise();

// A malloc'ed copy, so that the C ABI's caller needs no C++ runtime of ours to free it.
char* copy_text(const std::string& text);

}  // namespace cleave::llvm_backend
