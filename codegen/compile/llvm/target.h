// SPDX-License-Identifier: Apache-2.0
// What the parts of libcleave_llvm share: one-time initialisation of its targets, the lock of what
// LLVM keeps for the whole process, and what becomes of a process whose memory ends within it.
#pragma once

#include <mutex>
#include <shared_mutex>
#include <string>

namespace cleave::llvm_backend {

// While one is there its thread is inside LLVM, which is built without exceptions: std::bad_alloc
// would leave it half built and its destructors crash. Where its memory ends the process ends too,
// with a message on standard error and exit code 1. Other threads have their std::bad_alloc.
class InsideLlvm {
public:
    InsideLlvm();
    ~InsideLlvm();
    InsideLlvm(const InsideLlvm&) = delete;
    InsideLlvm& operator=(const InsideLlvm&) = delete;
};

// Registers the native target and AMDGPU: once per process, from any thread.
void initialise();

template <class Lock>
struct LlvmUse {
    InsideLlvm inside;
    Lock lock;
};

// LLVM's command-line options are the process's, and each link by lld sets them anew. What
// compiles, loads or reads objects holds the first, on any number of threads; what links, the
// second. initialise() is part of the first.
[[nodiscard]] LlvmUse<std::shared_lock<std::shared_mutex>> use_llvm();
[[nodiscard]] LlvmUse<std::unique_lock<std::shared_mutex>> use_llvm_alone();

// A malloc'ed copy, so that the C ABI's caller needs no C++ runtime of ours to free it.
char* copy_text(const std::string& text);

}  // namespace cleave::llvm_backend
