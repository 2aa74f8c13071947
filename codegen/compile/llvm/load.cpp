// SPDX-License-Identifier: Apache-2.0
// Objects -> callable functions, through ORC with JITLink. Kernels may refer to memcpy, memmove and
// memset (compilers emit them even when freestanding), to what rounds where the CPU has no
// instruction for it (x86 before SSE4.1), and to nothing else of this process.
#include <math.h>  // roundevenf

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include <llvm/ExecutionEngine/JITLink/JITLink.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/TargetParser/Host.h>

#include "codegen/compile/llvm/abi.h"
#include "codegen/compile/llvm/jit.h"
#include "codegen/compile/llvm/target.h"

#define CLEAVE_EXPORT extern "C" __attribute__((visibility("default")))

namespace orc = llvm::orc;

namespace cleave::llvm_backend {

llvm::Expected<std::unique_ptr<orc::LLJIT>> make_jit() {
    return orc::LLJITBuilder()
        .setJITTargetMachineBuilder(
            orc::JITTargetMachineBuilder(llvm::Triple(llvm::sys::getProcessTriple())))
        .setLinkProcessSymbolsByDefault(false)
        .setPlatformSetUp(orc::setUpInactivePlatform)
        .setObjectLinkingLayerCreator(
            [](orc::ExecutionSession& session,
               const llvm::Triple&) -> llvm::Expected<std::unique_ptr<orc::ObjectLayer>> {
                return std::make_unique<orc::ObjectLinkingLayer>(session);
            })
        .create();
}

}  // namespace cleave::llvm_backend

namespace {

using cleave::llvm_backend::make_jit;

struct LoadedCode {
    std::string said;  // what the session reported, which says why symbols are missing
    std::unique_ptr<orc::LLJIT> jit;
};

llvm::Error define_functions(orc::LLJIT& jit) {
    orc::SymbolMap symbols;
    auto add = [&](const char* name, void* address) {
        symbols[jit.mangleAndIntern(name)] = {
            orc::ExecutorAddr::fromPtr(address),
            llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
    };
    add("memcpy", reinterpret_cast<void*>(&std::memcpy));
    add("memmove", reinterpret_cast<void*>(&std::memmove));
    add("memset", reinterpret_cast<void*>(&std::memset));
    add("floorf", reinterpret_cast<void*>(&::floorf));
    add("ceilf", reinterpret_cast<void*>(&::ceilf));
    add("roundevenf", reinterpret_cast<void*>(&::roundevenf));
    return jit.getMainJITDylib().define(orc::absoluteSymbols(std::move(symbols)));
}

llvm::Error load(LoadedCode& code, const void* const* objects, const size_t* sizes,
                 const char* const* entries, size_t count, void** functions) {
    auto jit = make_jit();
    if (!jit) return jit.takeError();
    code.jit = std::move(*jit);
    code.jit->getExecutionSession().setErrorReporter([&code](llvm::Error error) {
        code.said += (code.said.empty() ? "" : "; ") + llvm::toString(std::move(error));
    });
    if (auto error = define_functions(*code.jit)) return error;
    for (size_t i = 0; i < count; ++i) {
        // A dylib per object: local helpers that two kernels share by name stay apart.
        auto dylib = code.jit->createJITDylib(std::string(entries[i]) + "#" + std::to_string(i));
        if (!dylib) return dylib.takeError();
        dylib->addToLinkOrder(code.jit->getMainJITDylib());
        auto buffer = llvm::MemoryBuffer::getMemBufferCopy(
            llvm::StringRef(static_cast<const char*>(objects[i]), sizes[i]), entries[i]);
        if (auto error = code.jit->addObjectFile(*dylib, std::move(buffer))) return error;
        auto address = code.jit->lookup(*dylib, entries[i]);
        if (!address) return address.takeError();
        functions[i] = address->toPtr<void*>();
    }
    return llvm::Error::success();
}

}  // namespace

CLEAVE_EXPORT void* cleave_llvm_load(const void* const* objects, const size_t* sizes,
                                     const char* const* entries, size_t count, void** functions,
                                     char** log) {
    const auto in_use = cleave::llvm_backend::use_llvm();
    auto code = std::make_unique<LoadedCode>();
    if (auto error = load(*code, objects, sizes, entries, count, functions)) {
        const std::string last = llvm::toString(std::move(error));
        *log = cleave::llvm_backend::copy_text(code->said.empty() ? last : code->said);
        return nullptr;
    }
    return code.release();
}

CLEAVE_EXPORT void cleave_llvm_unload(void* handle) { delete static_cast<LoadedCode*>(handle); }

CLEAVE_EXPORT void cleave_llvm_free_log(char* log) { std::free(log); }
