// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/TargetParser/Host.h>

#include "codegen/compile/llvm/jit.h"
#include "codegen/compile/llvm/simt_abi.h"
#include "codegen/compile/llvm/target.h"

#define CLEAVE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

namespace orc = llvm::orc;
using cleave::llvm_backend::make_jit;

llvm::Expected<const void*> load(orc::LLJIT& jit, llvm::StringRef object, const std::string& entry,
                                 const char* const* names, void* const* addresses, size_t count) {
    orc::SymbolMap symbols;
    for (size_t i = 0; i < count; ++i)
        symbols[jit.mangleAndIntern(names[i])] = {
            orc::ExecutorAddr::fromPtr(addresses[i]),
            llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
    if (auto error = jit.getMainJITDylib().define(orc::absoluteSymbols(std::move(symbols))))
        return error;
    if (auto error = jit.addObjectFile(llvm::MemoryBuffer::getMemBufferCopy(object, entry)))
        return error;
    auto record = jit.lookup(entry + ".simt");
    if (!record) return record.takeError();
    return record->toPtr<const void*>();
}

}  // namespace

CLEAVE_EXPORT void* cleave_llvm_simt_load(const void* object, size_t size, const char* entry,
                                          const char* const* names, void* const* addresses,
                                          size_t count, const void** record, char** log) {
    const auto in_use = cleave::llvm_backend::use_llvm();
    auto jit = make_jit();
    llvm::Error failure = llvm::Error::success();
    if (!jit) {
        failure = llvm::joinErrors(std::move(failure), jit.takeError());
    } else {
        auto found = load(**jit, llvm::StringRef(static_cast<const char*>(object), size), entry,
                          names, addresses, count);
        if (found) {
            *record = *found;
            return jit->release();
        }
        failure = llvm::joinErrors(std::move(failure), found.takeError());
    }
    *log = cleave::llvm_backend::copy_text(llvm::toString(std::move(failure)));
    return nullptr;
}

CLEAVE_EXPORT void cleave_llvm_simt_unload(void* handle) {
    delete static_cast<orc::LLJIT*>(handle);
}
