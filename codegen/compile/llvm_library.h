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

struct LlvmLibrary {
    bool available = false;
    std::string reason;  // names tried, when not available
    decltype(&cleave_llvm_version) version = nullptr;
    decltype(&cleave_llvm_host_cpu) host_cpu = nullptr;
    decltype(&cleave_llvm_host_features) host_features = nullptr;
    decltype(&cleave_llvm_knows_cpu) knows_cpu = nullptr;
    decltype(&cleave_llvm_missing_features) missing_features = nullptr;
    decltype(&cleave_llvm_options) options = nullptr;
    decltype(&cleave_llvm_compile) compile = nullptr;
    decltype(&cleave_llvm_free_result) free_result = nullptr;
    decltype(&cleave_llvm_load) load = nullptr;
    decltype(&cleave_llvm_unload) unload = nullptr;
    decltype(&cleave_llvm_free_log) free_log = nullptr;
    decltype(&cleave_llvm_simt_compile) simt_compile = nullptr;
    decltype(&cleave_llvm_simt_load) simt_load = nullptr;
    decltype(&cleave_llvm_simt_unload) simt_unload = nullptr;
    decltype(&cleave_llvm_knows_amdgpu) knows_amdgpu = nullptr;
    decltype(&cleave_llvm_amdgpu_options) amdgpu_options = nullptr;
    decltype(&cleave_llvm_amdgpu_compile) amdgpu_compile = nullptr;
    decltype(&cleave_llvm_amdgpu_inspect) amdgpu_inspect = nullptr;
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
