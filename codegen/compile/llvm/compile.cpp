// SPDX-License-Identifier: Apache-2.0
// Source text -> object file of the host, in this process.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <clang/Basic/Diagnostic.h>
#include <clang/CodeGen/CodeGenAction.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/CompilerInvocation.h>
#include <clang/Frontend/FrontendOptions.h>
#include <clang/Frontend/TextDiagnosticPrinter.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/Object/ObjectFile.h>
#include <llvm/Support/DataExtractor.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Host.h>

#include "codegen/compile/llvm/abi.h"
#include "codegen/compile/llvm/clang_job.h"
#include "codegen/compile/llvm/target.h"
#include "runtime/base/split.h"

#define CLEAVE_EXPORT extern "C" __attribute__((visibility("default")))

namespace cleave::llvm_backend {

std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts = split_at(text, separator);
    std::erase(parts, "");
    return parts;
}

bool compile_object(llvm::StringRef source, llvm::StringRef name,
                    const std::vector<std::string>& args, clang::Language language,
                    llvm::SmallVectorImpl<char>& object, llvm::raw_ostream& log) {
    llvm::IntrusiveRefCntPtr<clang::DiagnosticIDs> ids(new clang::DiagnosticIDs());
    llvm::IntrusiveRefCntPtr<clang::DiagnosticOptions> options(new clang::DiagnosticOptions());
    clang::TextDiagnosticPrinter printer(log, options.get());
    clang::DiagnosticsEngine diagnostics(ids, options, &printer, false);

    std::vector<const char*> pointers;
    for (const std::string& arg : args) pointers.push_back(arg.c_str());
    clang::CompilerInstance instance;
    instance.setVerboseOutputStream(log);  // counts of warnings would go to standard error
    if (!clang::CompilerInvocation::CreateFromArgs(instance.getInvocation(), pointers, diagnostics))
        return false;
    instance.createDiagnostics(&printer, false);

    std::unique_ptr<llvm::MemoryBuffer> buffer = llvm::MemoryBuffer::getMemBufferCopy(source, name);
    instance.getFrontendOpts().Inputs = {
        clang::FrontendInputFile(buffer->getMemBufferRef(), clang::InputKind(language))};
    instance.getFrontendOpts().DisableFree = false;
    instance.setOutputStream(std::make_unique<llvm::raw_svector_ostream>(object));
    clang::EmitObjAction action;
    return instance.ExecuteAction(action) && !instance.getDiagnostics().hasErrorOccurred();
}

void hand_out(llvm::StringRef object, cleave_llvm_result* result) {
    result->object = std::malloc(object.size());
    result->object_size = object.size();
    std::memcpy(result->object, object.data(), object.size());
}

}  // namespace cleave::llvm_backend

namespace {

using cleave::llvm_backend::split;
using llvm::StringRef;

// No flag relaxes what NaN and infinity mean; only a * b + c may become one FMA. 512-bit vectors
// are asked for explicitly by the templates, so the target must not split them.
constexpr const char* kHostOptions =
    "-emit-obj -x c++ -std=c++20 -O3 -ffreestanding -nostdsysteminc -nobuiltininc -fno-rtti "
    "-ffp-contract=fast -mprefer-vector-width=512 -vectorize-loops -mframe-pointer=none "
    "-mrelocation-model pic -pic-level 2 -fstack-size-section -Wall -Wno-psabi "
    "-Wno-unused-function -fno-threadsafe-statics";

std::vector<std::string> arguments(const char* cpu, const char* features) {
    std::vector<std::string> args = {"-triple", llvm::sys::getProcessTriple(), "-target-cpu", cpu};
    for (const std::string& feature : split(features, ',')) {
        args.push_back("-target-feature");
        args.push_back(feature);
    }
    for (const std::string& option : split(kHostOptions, ' ')) args.push_back(option);
    return args;
}

// Sizes of text sections, and the largest frame that `.stack_sizes` reports ([address, ULEB128]
// pairs).
void measure(cleave_llvm_result* result) {
    StringRef bytes(static_cast<const char*>(result->object), result->object_size);
    auto object =
        llvm::object::ObjectFile::createObjectFile(llvm::MemoryBufferRef(bytes, "kernel"));
    if (!object) {
        llvm::consumeError(object.takeError());
        return;
    }
    for (const llvm::object::SectionRef& section : (*object)->sections()) {
        if (section.isText()) result->code_bytes += static_cast<int64_t>(section.getSize());
        llvm::Expected<StringRef> name = section.getName();
        if (!name) {
            llvm::consumeError(name.takeError());
            continue;
        }
        if (*name != ".stack_sizes") continue;
        llvm::Expected<StringRef> contents = section.getContents();
        if (!contents) {
            llvm::consumeError(contents.takeError());
            continue;
        }
        llvm::DataExtractor data(*contents, true, 8);
        for (uint64_t at = 0; data.isValidOffsetForDataOfSize(at, 9);) {
            data.getU64(&at);
            auto frame = static_cast<int64_t>(data.getULEB128(&at));
            if (frame > result->stack_bytes) result->stack_bytes = frame;
        }
    }
}

}  // namespace

CLEAVE_EXPORT const char* cleave_llvm_options(void) { return kHostOptions; }

CLEAVE_EXPORT void cleave_llvm_compile(const char* source, size_t source_size, const char* name,
                                       const char* cpu, const char* features,
                                       cleave_llvm_result* result) {
    *result = cleave_llvm_result{};
    const auto in_use = cleave::llvm_backend::use_llvm();
    llvm::SmallVector<char, 0> object;
    std::string log;
    {
        llvm::raw_string_ostream stream(log);
        result->ok = cleave::llvm_backend::compile_object(StringRef(source, source_size), name,
                                                          arguments(cpu, features),
                                                          clang::Language::CXX, object, stream);
    }
    result->log = cleave::llvm_backend::copy_text(log);
    if (!result->ok) return;
    cleave::llvm_backend::hand_out({object.data(), object.size()}, result);
    measure(result);
}

CLEAVE_EXPORT void cleave_llvm_free_result(cleave_llvm_result* result) {
    std::free(result->object);
    std::free(result->log);
    *result = cleave_llvm_result{};
}
