// SPDX-License-Identifier: Apache-2.0
// What both halves of libcleave_llvm share: one-time initialisation of the native target.
#pragma once

#include <string>

namespace cleave::llvm_backend {

// Registers the native target, its assembler printer and parser: once per process, from any thread.
void initialise();

// A malloc'ed copy, so that the C ABI's caller needs no C++ runtime of ours to free it.
char* copy_text(const std::string& text);

}  // namespace cleave::llvm_backend
