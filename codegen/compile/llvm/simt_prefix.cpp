// SPDX-License-Identifier: Apache-2.0
#include "codegen/compile/llvm/simt_prefix.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <utility>

#include <clang/Frontend/CompilerInvocation.h>
#include <clang/Frontend/FrontendAction.h>
#include <clang/Frontend/FrontendOptions.h>
#include <clang/Lex/PreprocessorOptions.h>
#include <clang/Serialization/ASTWriter.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/VirtualFileSystem.h>

namespace cleave::llvm_backend {

namespace {

constexpr const char* kFile = "prefix.pch";

// What clang::GeneratePCHAction does, without a file.
class WritePrefix final : public clang::ASTFrontendAction {
public:
    explicit WritePrefix(std::shared_ptr<clang::PCHBuffer> bytes) : bytes_(std::move(bytes)) {}

    clang::TranslationUnitKind getTranslationUnitKind() override { return clang::TU_Prefix; }
    bool hasASTFileSupport() const override { return false; }
    std::unique_ptr<clang::ASTConsumer> CreateASTConsumer(clang::CompilerInstance& instance,
                                                          llvm::StringRef) override {
        return std::make_unique<clang::PCHGenerator>(
            instance.getPreprocessor(), instance.getModuleCache(), "", "", bytes_,
            llvm::ArrayRef<std::shared_ptr<clang::ModuleFileExtension>>(),
            /*AllowASTWithErrors=*/false, /*IncludeTimestamps=*/false);
    }

private:
    std::shared_ptr<clang::PCHBuffer> bytes_;
};

// Without files of the system, names in `#line` stay as they are written.
llvm::IntrusiveRefCntPtr<llvm::vfs::InMemoryFileSystem> no_files() {
    return llvm::makeIntrusiveRefCnt<llvm::vfs::InMemoryFileSystem>();
}

PrecompiledPrefix make(const std::string& text, const std::vector<std::string>& args) {
    clang::IgnoringDiagConsumer silent;
    llvm::IntrusiveRefCntPtr<clang::DiagnosticIDs> ids(new clang::DiagnosticIDs());
    llvm::IntrusiveRefCntPtr<clang::DiagnosticOptions> options(new clang::DiagnosticOptions());
    clang::DiagnosticsEngine diagnostics(ids, options, &silent, false);
    std::vector<const char*> pointers;
    for (const std::string& arg : args) pointers.push_back(arg.c_str());
    std::string unread;
    llvm::raw_string_ostream counts(unread);
    auto buffer = llvm::MemoryBuffer::getMemBuffer(text, "prefix");
    clang::CompilerInstance instance;
    if (!clang::CompilerInvocation::CreateFromArgs(instance.getInvocation(), pointers, diagnostics))
        return nullptr;
    instance.createDiagnostics(&silent, false);
    instance.setVerboseOutputStream(counts);
    instance.createFileManager(no_files());
    instance.getFrontendOpts().Inputs = {clang::FrontendInputFile(
        buffer->getMemBufferRef(), clang::InputKind(clang::Language::CXX))};
    instance.getFrontendOpts().DisableFree = false;
    instance.getLangOpts().CompilingPCH = true;
    instance.getPreprocessorOpts().WriteCommentListToPCH = false;
    auto bytes = std::make_shared<clang::PCHBuffer>();
    WritePrefix action(bytes);
    bool made = instance.ExecuteAction(action) && !instance.getDiagnostics().hasErrorOccurred() &&
                bytes->IsComplete;
    if (!made) return nullptr;
    return std::make_shared<const std::string>(bytes->Data.begin(), bytes->Data.end());
}

struct Known {
    std::vector<std::string> args;
    std::string text;
    bool wanted = false;  // a second time: made, being made, or impossible
    PrecompiledPrefix prefix;
};

// The last one used stands first.
struct Cache {
    std::mutex mutex;
    std::list<Known> known;
};

}  // namespace

PrecompiledPrefix precompile_prefix(const std::string& text, const std::vector<std::string>& args) {
    static Cache& cache = *new Cache;
    auto find = [&] {
        return std::find_if(cache.known.begin(), cache.known.end(), [&](const Known& known) {
            return known.args == args && known.text == text;
        });
    };
    {
        std::lock_guard lock(cache.mutex);
        auto found = find();
        if (found == cache.known.end()) {
            cache.known.push_front({args, text, false, nullptr});
            if (cache.known.size() > kMostPrefixes) cache.known.pop_back();
            return nullptr;
        }
        cache.known.splice(cache.known.begin(), cache.known, found);
        if (std::exchange(found->wanted, true)) return found->prefix;
    }
    PrecompiledPrefix made = make(text, args);
    std::lock_guard lock(cache.mutex);
    if (auto found = find(); found != cache.known.end()) found->prefix = made;
    return made;
}

void use_prefix(clang::CompilerInstance& instance, const PrecompiledPrefix& prefix) {
    auto files = no_files();
    if (prefix) {
        files->addFileNoOwn(kFile, 0, llvm::MemoryBufferRef(*prefix, kFile));
        instance.getPreprocessorOpts().ImplicitPCHInclude = kFile;
    }
    instance.createFileManager(files);
}

std::string line_after(llvm::StringRef prefix, llvm::StringRef file) {
    constexpr llvm::StringLiteral kMark = "#line 1 \"";
    size_t at = prefix.rfind(("\n" + kMark).str());
    if (at != llvm::StringRef::npos) {
        llvm::StringRef rest = prefix.substr(at + 1 + kMark.size());
        file = rest.take_until([](char c) { return c == '"'; });
        prefix = rest.drop_until([](char c) { return c == '\n'; }).drop_front();
    }
    return ("#line " + llvm::Twine(prefix.count('\n') + 1) + " \"" + file + "\"\n").str();
}

}  // namespace cleave::llvm_backend
