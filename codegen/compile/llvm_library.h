// SPDX-License-Identifier: Apache-2.0
// libcleave_llvm as opened at run time. Opened once, at the first use, and never closed: LLVM does
// not support being unloaded. Tried in order: $CLEAVE_LLVM_LIBRARY, beside the executable (../lib,
// then its own folder), the build's library folder, then the loader's own search.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "codegen/compile/llvm/abi.h"
#include "codegen/compile/llvm/simt_abi.h"
#include "codegen/kernel/program.h"

namespace cleave::codegen {

// The functions of its ABI, without the prefix cleave_llvm_.
// clang-format off
#define CLEAVE_LLVM_FUNCTIONS(X) \
    X(version) X(host_cpu) X(host_features) X(knows_cpu) X(missing_features) X(options) \
    X(compile) X(free_result) X(load) X(unload) X(free_log) \
    X(simt_compile) X(simt_load) X(simt_unload) \
    X(knows_amdgpu) X(amdgpu_options) X(amdgpu_compile) X(amdgpu_inspect)
// clang-format on

struct LlvmLibrary {
    bool available = false;
    std::string reason;  // names tried, when not available
// NOLINTNEXTLINE(bugprone-macro-parentheses): it declares the name
#define CLEAVE_LLVM_POINTER(name) decltype(&cleave_llvm_##name) name = nullptr;
    CLEAVE_LLVM_FUNCTIONS(CLEAVE_LLVM_POINTER)
#undef CLEAVE_LLVM_POINTER
};

// Thread-safe. `find_llvm_library` reports absence, `llvm_library` throws UserError with what to
// install.
const LlvmLibrary& find_llvm_library();
const LlvmLibrary& llvm_library();

// What a compilation gave, freed at its end.
class LlvmResult {
public:
    explicit LlvmResult(const LlvmLibrary& llvm) : llvm_(llvm) {}
    ~LlvmResult() { llvm_.free_result(&result_); }
    LlvmResult(const LlvmResult&) = delete;
    LlvmResult& operator=(const LlvmResult&) = delete;

    cleave_llvm_result* out() { return &result_; }
    // The object, called `entry`, with its sizes of code and stack. InternalError by
    // throw_does_not_compile when there is none.
    CompiledKernel take(const std::string& entry, std::string_view target,
                        std::string_view source) const;

private:
    const LlvmLibrary& llvm_;
    cleave_llvm_result result_{};
};

// The names that are tried, in order.
std::vector<std::string> llvm_library_names();

}  // namespace cleave::codegen
