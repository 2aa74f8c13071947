// SPDX-License-Identifier: Apache-2.0
#include "codegen/compile/llvm/target.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string_view>

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/ADT/StringRef.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/TargetParser/Host.h>

#include "codegen/compile/llvm/abi.h"
#include "runtime/base/matrix_tiles.h"

#define CLEAVE_EXPORT extern "C" __attribute__((visibility("default")))

namespace cleave::llvm_backend {

namespace {

// Of InsideLlvm. At hand in every thread: the loader ends the process where it has no memory for
// another library's.
__attribute__((tls_model("initial-exec"))) thread_local int depth = 0;
std::new_handler outside = nullptr;

// Takes no memory, and leaves locks of other threads alone.
[[noreturn]] void end_without_memory() {
    constexpr std::string_view kReason =
        "cleave: out of memory on this host while LLVM had a kernel at work; give the process more "
        "memory, or more address space\n";
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kReason.data(), kReason.size());
    _exit(1);
}

// Of operator new, in any thread.
void on_no_memory() {
    if (depth > 0) end_without_memory();
    if (!outside) throw std::bad_alloc();
    outside();
}

}  // namespace

InsideLlvm::InsideLlvm() {
    static std::once_flag once;
    std::call_once(once, [] {
        outside = std::set_new_handler(on_no_memory);
        llvm::install_bad_alloc_error_handler(
            [](void*, const char*, bool) { end_without_memory(); });
    });
    ++depth;
}

InsideLlvm::~InsideLlvm() { --depth; }

void initialise() {
    static std::once_flag once;
    std::call_once(once, [] {
        llvm::InitializeNativeTarget();
        llvm::InitializeNativeTargetAsmPrinter();
        llvm::InitializeNativeTargetAsmParser();
        LLVMInitializeAMDGPUTargetInfo();
        LLVMInitializeAMDGPUTarget();
        LLVMInitializeAMDGPUTargetMC();
        LLVMInitializeAMDGPUAsmPrinter();
        LLVMInitializeAMDGPUAsmParser();
        LLVMInitializeAMDGPUDisassembler();
    });
}

namespace {
std::shared_mutex& options_mutex() {
    static std::shared_mutex& mutex = *new std::shared_mutex;  // threads may outlive statics
    return mutex;
}
}  // namespace

LlvmUse<std::shared_lock<std::shared_mutex>> use_llvm() {
    const InsideLlvm inside;
    initialise();
    return {.inside = {}, .lock = std::shared_lock(options_mutex())};
}

LlvmUse<std::unique_lock<std::shared_mutex>> use_llvm_alone() {
    return {.inside = {}, .lock = std::unique_lock(options_mutex())};
}

char* copy_text(const std::string& text) {
    char* copy = static_cast<char*>(std::malloc(text.size() + 1));
    if (copy) std::memcpy(copy, text.c_str(), text.size() + 1);
    return copy;
}

namespace {

std::string sorted_host_features() {
    std::map<std::string, bool> features;
    for (const auto& feature : llvm::sys::getHostCPUFeatures())
        features[feature.first().str()] = feature.second;
    // The CPU has tiles, and the system may not give them to this process.
    if (const auto tiles = features.find("amx-tile");
        tiles != features.end() && tiles->second && !may_use_tiles())
        for (auto& [name, on] : features) on = on && !llvm::StringRef(name).starts_with("amx");
    std::string text;
    for (const auto& [name, on] : features) {
        if (!text.empty()) text += ',';
        text += (on ? '+' : '-') + name;
    }
    return text;
}

}  // namespace
}  // namespace cleave::llvm_backend

using cleave::llvm_backend::InsideLlvm;

CLEAVE_EXPORT int cleave_llvm_abi_version(void) { return CLEAVE_LLVM_ABI_VERSION; }

CLEAVE_EXPORT const char* cleave_llvm_version(void) { return LLVM_VERSION_STRING; }

CLEAVE_EXPORT const char* cleave_llvm_host_cpu(void) {
    const InsideLlvm inside;
    static const std::string kCpu = llvm::sys::getHostCPUName().str();
    return kCpu.c_str();
}

CLEAVE_EXPORT const char* cleave_llvm_host_features(void) {
    const InsideLlvm inside;
    static const std::string kFeatures = cleave::llvm_backend::sorted_host_features();
    return kFeatures.c_str();
}

namespace {

std::unique_ptr<llvm::MCSubtargetInfo> subtarget(const char* cpu) {
    cleave::llvm_backend::initialise();
    std::string error;
    const std::string triple = llvm::sys::getProcessTriple();
    const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
    if (!target) return nullptr;
    return std::unique_ptr<llvm::MCSubtargetInfo>(target->createMCSubtargetInfo(triple, cpu, ""));
}

// Whether kernels may have its instructions: not those of systems, locks, random numbers or
// encryption ("pku", "waitpkg", "rdrnd"), which virtual machines hide more often.
bool is_for_kernels(llvm::StringRef feature) {
    constexpr std::array kPrefixes{"amx",    "avx", "bmi",  "cx16",  "evex",
                                   "f16c",   "fma", "gfni", "lzcnt", "movbe",
                                   "popcnt", "sse", "ssse", "tbm",   "xop"};
    return llvm::any_of(kPrefixes, [&](const char* p) { return feature.starts_with(p); });
}

}  // namespace

CLEAVE_EXPORT int cleave_llvm_knows_cpu(const char* cpu) {
    const InsideLlvm inside;
    // Asked of a generic subtarget: making one for an unknown name would print to standard error.
    std::unique_ptr<llvm::MCSubtargetInfo> info = subtarget("");
    return info && info->isCPUStringValid(cpu) ? 1 : 0;
}

CLEAVE_EXPORT char* cleave_llvm_missing_features(const char* cpu, const char* features) {
    const InsideLlvm inside;
    std::string missing;
    const std::string have = std::string(",") + features + ",";
    std::unique_ptr<llvm::MCSubtargetInfo> info = subtarget(cpu);
    if (info) {
        // Only what the host reports at all counts: the rest is tuning ("+slow-...", "+fast-...").
        for (const llvm::SubtargetFeatureKV& feature : info->getEnabledProcessorFeatures())
            if (is_for_kernels(feature.Key) &&
                have.find(std::string(",-") + feature.Key + ",") != std::string::npos)
                missing += (missing.empty() ? "" : " ") + std::string(feature.Key);
    }
    return cleave::llvm_backend::copy_text(missing);
}
