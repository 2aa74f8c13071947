// SPDX-License-Identifier: Apache-2.0
// What the parts of libcleave_llvm share: one-time initialisation of its targets, and the lock of
// what LLVM keeps for the whole process.
#pragma once

#include <mutex>
#include <shared_mutex>
#include <string>

namespace cleave::llvm_backend {

// Registers the native target and AMDGPU: once per process, from any thread.
void initialise();

// LLVM's command-line options are the process's, and each link by lld sets them anew. What
// compiles, loads or reads objects holds the first, on any number of threads; what links, the
// second. initialise() is part of the first.
[[nodiscard]] std::shared_lock<std::shared_mutex> use_llvm();
[[nodiscard]] std::unique_lock<std::shared_mutex> use_llvm_alone();

// A malloc'ed copy, so that the C ABI's caller needs no C++ runtime of ours to free it.
char* copy_text(const std::string& text);

}  // namespace cleave::llvm_backend
