// SPDX-License-Identifier: Apache-2.0
#include "codegen/compile/llvm_library.h"

#include <optional>

#include <fmt/format.h>

#include "codegen/compile/backend.h"
#include "runtime/base/dynamic_library.h"
#include "runtime/base/environment.h"
#include "runtime/base/errors.h"

namespace cleave::codegen {

namespace {

template <class Function>
bool resolve(const DynamicLibrary& library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(library.symbol(name));
    return function != nullptr;
}

LlvmLibrary open() {
    LlvmLibrary llvm;
    // Deliberately leaked: closing LLVM at exit would run its destructors after ours.
    static std::optional<DynamicLibrary>& library = *new std::optional<DynamicLibrary>(
        DynamicLibrary::open_first(llvm_library_names(), &llvm.reason));
    if (!library) return llvm;
    auto* abi = library->function<int()>("cleave_llvm_abi_version");
    if (!abi || abi() != CLEAVE_LLVM_ABI_VERSION) {
        llvm.reason = fmt::format("{} is of another version of Cleave (its ABI is {}, wanted {})",
                                  library->name(), abi ? abi() : 0, CLEAVE_LLVM_ABI_VERSION);
        return llvm;
    }
    const DynamicLibrary& l = *library;
    llvm.available = true;
#define CLEAVE_LLVM_RESOLVE(name) \
    llvm.available = resolve(l, "cleave_llvm_" #name, llvm.name) && llvm.available;
    CLEAVE_LLVM_FUNCTIONS(CLEAVE_LLVM_RESOLVE)
#undef CLEAVE_LLVM_RESOLVE
    if (!llvm.available)
        llvm.reason = fmt::format("{} lacks a function of its ABI", library->name());
    return llvm;
}

}  // namespace

std::vector<std::string> llvm_library_names() {
    if (std::string chosen = environment("CLEAVE_LLVM_LIBRARY"); !chosen.empty()) return {chosen};
    return library_names("libcleave_llvm.so");
}

const LlvmLibrary& find_llvm_library() {
    static const LlvmLibrary& llvm = *new LlvmLibrary(open());
    return llvm;
}

const LlvmLibrary& llvm_library() {
    const LlvmLibrary& llvm = find_llvm_library();
    // ld.so's words where the address space has no room for one.
    if (!llvm.available && llvm.reason.find("failed to map segment") != std::string::npos)
        throw UserError(
            "compiling kernels needs libcleave_llvm and LLVM/Clang 19, for which there is no "
            "memory: {}; raise the limit of address space (ulimit -v) to 500 MB or more",
            llvm.reason);
    if (!llvm.available)
        throw UserError(
            "compiling kernels needs libcleave_llvm and LLVM/Clang 19, which could not be opened: "
            "{}; "
            "install libclang-cpp19 and libllvm19, or set CLEAVE_LLVM_LIBRARY to the library's "
            "path",
            llvm.reason);
    return llvm;
}

CompiledKernel LlvmResult::take(const std::string& entry, std::string_view target,
                                std::string_view source) const {
    if (!result_.ok) throw_does_not_compile(entry, target, result_.log ? result_.log : "", source);
    CompiledKernel compiled;
    compiled.name = entry;
    const auto* bytes = static_cast<const std::byte*>(result_.object);
    compiled.object.assign(bytes, bytes + result_.object_size);
    compiled.measured.code_bytes = result_.code_bytes;
    compiled.measured.stack_bytes = result_.stack_bytes;
    return compiled;
}

}  // namespace cleave::codegen
