// SPDX-License-Identifier: Apache-2.0
// GPU source -> AMD code object: Clang's HIP front end for amdgcn, and lld, both in this process.
// The options are those of the HIP driver (clang --offload-arch, "HIP Support" in Clang's
// documentation) without its device libraries.
#include <string>
#include <vector>

#include <lld/Common/Driver.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/FileSystem.h>
#include <llvm/Support/FileUtilities.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/TargetParser/Host.h>

#include "codegen/compile/llvm/abi.h"
#include "codegen/compile/llvm/amdgpu.h"
#include "codegen/compile/llvm/clang_job.h"
#include "codegen/compile/llvm/target.h"

#define CLEAVE_EXPORT extern "C" __attribute__((visibility("default")))

LLD_HAS_DRIVER(elf)

namespace cleave::llvm_backend {

namespace {

// Version 4 of code objects: every HIP driver since ROCm 4.1 loads it, those of today too.
constexpr const char* kAmdgpuOptions =
    "-emit-obj -x hip -fcuda-is-device -std=c++17 -O3 -nostdsysteminc -nobuiltininc "
    "-ffp-contract=fast -fvisibility=hidden -fapply-global-visibility-to-externs "
    "-mcode-object-version=4 -fno-threadsafe-statics -fno-rtti -vectorize-loops -vectorize-slp "
    "-Wno-undefined-internal -Wno-unused-value";

bool write_file(StringRef path, StringRef bytes, raw_ostream& log) {
    std::error_code error;
    raw_fd_ostream file(path, error);
    if (!error) {
        file << bytes;
        file.close();
        error = file.error();
        file.clear_error();
    }
    if (error) log << "cannot write " << path << ": " << error.message() << "\n";
    return !error;
}

bool compile_amdgpu(StringRef source, StringRef name, const char* arch,
                    SmallVectorImpl<char>& object, raw_ostream& log) {
    const auto in_use = use_llvm();
    if (!amdgpu_subtarget(arch)) {
        log << "LLVM " << cleave_llvm_version() << " knows no AMD GPU '" << arch << "'\n";
        return false;
    }
    std::vector<std::string> args = {
        "-triple", kAmdgpuTriple, "-aux-triple", sys::getProcessTriple(), "-target-cpu", arch};
    for (std::string& option : split(kAmdgpuOptions, ' ')) args.push_back(std::move(option));
    return compile_object(source, name, args, clang::Language::HIP, object, log);
}

// lld reads and writes files only, and keeps its state in globals: one link at a time, which takes
// milliseconds.
bool link(StringRef object, SmallVectorImpl<char>& linked, raw_ostream& log) {
    const auto alone = use_llvm_alone();
    SmallString<128> in, out;
    if (std::error_code error = sys::fs::createTemporaryFile("cleave", "o", in)) {
        log << "cannot make a temporary file: " << error.message() << "\n";
        return false;
    }
    FileRemover remove_in(in);
    out = in;
    out += ".hsaco";
    FileRemover remove_out(out);
    if (!write_file(in, object, log)) return false;
    const char* args[] = {"ld.lld",      "-shared", "--no-undefined", "-m",      "elf64_amdgpu",
                          "--threads=1", "-o",      out.c_str(),      in.c_str()};
    lld::Result result = lld::lldMain(args, log, log, {{lld::Gnu, &lld::elf::link}});
    if (result.retCode != 0) return false;
    auto buffer = MemoryBuffer::getFile(out);
    if (!buffer) {
        log << "cannot read " << out << ": " << buffer.getError().message() << "\n";
        return false;
    }
    StringRef bytes = (*buffer)->getBuffer();
    linked.assign(bytes.begin(), bytes.end());
    return true;
}

}  // namespace

std::unique_ptr<MCSubtargetInfo> amdgpu_subtarget(const char* arch) {
    initialise();
    std::string error;
    const Target* target = TargetRegistry::lookupTarget(kAmdgpuTriple, error);
    if (!target) return nullptr;
    // Asked of a generic subtarget: making one for an unknown name would print to standard error.
    std::unique_ptr<MCSubtargetInfo> generic(target->createMCSubtargetInfo(kAmdgpuTriple, "", ""));
    if (!generic || !generic->isCPUStringValid(arch)) return nullptr;
    return std::unique_ptr<MCSubtargetInfo>(target->createMCSubtargetInfo(kAmdgpuTriple, arch, ""));
}

}  // namespace cleave::llvm_backend

using namespace cleave::llvm_backend;

CLEAVE_EXPORT int cleave_llvm_knows_amdgpu(const char* arch) {
    const InsideLlvm inside;
    return amdgpu_subtarget(arch) ? 1 : 0;
}

CLEAVE_EXPORT const char* cleave_llvm_amdgpu_options(void) { return kAmdgpuOptions; }

CLEAVE_EXPORT void cleave_llvm_amdgpu_compile(const char* source, size_t source_size,
                                              const char* name, const char* arch,
                                              cleave_llvm_result* result) {
    *result = cleave_llvm_result{};
    std::string log;
    llvm::SmallVector<char, 0> object, linked;
    {
        llvm::raw_string_ostream stream(log);
        result->ok = compile_amdgpu({source, source_size}, name, arch, object, stream) &&
                     link({object.data(), object.size()}, linked, stream);
    }
    result->log = copy_text(log);
    if (result->ok) hand_out({linked.data(), linked.size()}, result);
}
