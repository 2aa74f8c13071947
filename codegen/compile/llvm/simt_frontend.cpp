// SPDX-License-Identifier: Apache-2.0
#include <clang/CodeGen/CodeGenAction.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/CompilerInvocation.h>
#include <clang/Frontend/FrontendOptions.h>
#include <clang/Frontend/TextDiagnosticPrinter.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Host.h>

#include "codegen/compile/llvm/simt_passes.h"
#include "codegen/compile/llvm/simt_prefix.h"

namespace cleave::llvm_backend {

namespace {

// Line tables serve the reports of checks. Contraction is on, as both GPU compilers have it. The
// processor is said to the target machine alone: here every function would get the list of its
// features.
std::vector<std::string> arguments(const cleave_llvm_simt_options& options) {
    std::string triple = llvm::sys::getProcessTriple();
    std::vector<std::string> args = {"-triple",
                                     triple,
                                     "-x",
                                     "c++",
                                     "-std=c++17",
                                     is_quick(options) ? "-O0" : "-O2",
                                     "-disable-O0-optnone",
                                     "-disable-llvm-passes",
                                     "-emit-llvm-only",
                                     "-nostdsysteminc",
                                     "-nobuiltininc",
                                     "-ffp-contract=fast",
                                     "-relaxed-aliasing",
                                     "-mrelocation-model",
                                     "pic",
                                     "-pic-level",
                                     "2",
                                     "-w",
                                     "-disable-llvm-verifier",
                                     "-DCLEAVE_SIMT=1"};
    if (options.checks)
        args.insert(args.end(), {"-debug-info-kind=line-tables-only", "-gno-column-info",
                                 "-DCLEAVE_SIMT_CHECKS=1"});
    for (size_t i = 0; i < options.num_defines; ++i)
        args.push_back(std::string("-D") + options.defines[i]);
    return args;
}

// A quick compilation unrolls no loop. Blanks instead of the lines that ask for it: places stay
// what they are.
void blank_unrolling(llvm::MutableArrayRef<char> text) {
    llvm::StringRef all(text.data(), text.size());
    constexpr llvm::StringLiteral kPragma = "#pragma unroll";
    for (size_t at = all.find(kPragma); at != llvm::StringRef::npos; at = all.find(kPragma, at))
        while (at < text.size() && text[at] != '\n') text[at++] = ' ';
}

// What Clang reads: the source, or what follows the part that is precompiled.
struct Input {
    std::string text;
    PrecompiledPrefix prefix;
};

// The longer run, or the shorter one until that is worth it.
Input take_prefix(const Input& whole, llvm::StringRef name, const cleave_llvm_simt_options& options,
                  const std::vector<std::string>& args) {
    for (size_t end : {options.shared_end, options.prelude_end}) {
        if (options.shared_begin >= end) continue;
        std::string shared = whole.text.substr(options.shared_begin, end - options.shared_begin);
        if (PrecompiledPrefix prefix = precompile_prefix(shared, args))
            return {line_after(shared, name) + whole.text.substr(end), prefix};
    }
    return {};
}

std::unique_ptr<llvm::Module> parse(const Input& input, llvm::StringRef name,
                                    const std::vector<std::string>& args,
                                    llvm::LLVMContext& context, llvm::raw_ostream& log) {
    llvm::IntrusiveRefCntPtr<clang::DiagnosticIDs> ids(new clang::DiagnosticIDs());
    llvm::IntrusiveRefCntPtr<clang::DiagnosticOptions> diagnostic_options(
        new clang::DiagnosticOptions());
    clang::TextDiagnosticPrinter printer(log, diagnostic_options.get());
    clang::DiagnosticsEngine diagnostics(ids, diagnostic_options, &printer, false);

    std::vector<const char*> pointers;
    for (const std::string& arg : args) pointers.push_back(arg.c_str());
    auto buffer = llvm::MemoryBuffer::getMemBuffer(input.text, name);
    clang::CompilerInstance instance;
    instance.setVerboseOutputStream(log);
    if (!clang::CompilerInvocation::CreateFromArgs(instance.getInvocation(), pointers, diagnostics))
        return nullptr;
    instance.createDiagnostics(&printer, false);

    use_prefix(instance, input.prefix);
    instance.getFrontendOpts().Inputs = {clang::FrontendInputFile(
        buffer->getMemBufferRef(), clang::InputKind(clang::Language::CXX))};
    instance.getFrontendOpts().DisableFree = false;
    clang::EmitLLVMOnlyAction action(&context);
    if (!instance.ExecuteAction(action) || instance.getDiagnostics().hasErrorOccurred())
        return nullptr;
    return action.takeModule();
}

}  // namespace

std::unique_ptr<llvm::Module> parse_simt(llvm::StringRef source, llvm::StringRef name,
                                         const cleave_llvm_simt_options& options,
                                         llvm::LLVMContext& context, llvm::raw_ostream& log) {
    std::vector<std::string> args = arguments(options);
    Input whole{source.str(), nullptr};
    if (is_quick(options)) blank_unrolling({whole.text.data(), whole.text.size()});
    if (Input rest = take_prefix(whole, name, options, args); rest.prefix) {
        std::string unread;  // errors are of the whole source's lines
        llvm::raw_string_ostream stream(unread);
        if (auto module = parse(rest, name, args, context, stream)) return module;
    }
    return parse(whole, name, args, context, log);
}

}  // namespace cleave::llvm_backend
