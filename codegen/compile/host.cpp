// SPDX-License-Identifier: Apache-2.0
#include "codegen/compile/host.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "codegen/compile/llvm_library.h"
#include "runtime/base/errors.h"
#include "runtime/base/hash.h"

namespace cleave::codegen {

namespace {

constexpr std::string_view kInProcess = " (in-process), ", kWithout = " without ";

// Features that code for the CPU may use and this machine does not have.
std::string missing_here(const LlvmLibrary& llvm, const std::string& cpu) {
    char* text = llvm.missing_features(cpu.c_str(), llvm.host_features());
    std::string missing = text ? text : "";
    llvm.free_log(text);
    return missing;
}

// "znver4"; "sapphirerapids without amx-tile amx-int8", as a virtual machine may be.
std::string this_cpu(const LlvmLibrary& llvm) {
    const std::string cpu = llvm.host_cpu(), missing = missing_here(llvm, cpu);
    return missing.empty() ? cpu : cpu + std::string(kWithout) + missing;
}

// CPU and features that kernels are compiled for, and its words in the compiler's name; no
// features: all that such a CPU has.
struct HostCpu {
    std::string name, features, words;
};

HostCpu choose_cpu(const LlvmLibrary& llvm, const std::string& wanted) {
    if (wanted.empty()) return {llvm.host_cpu(), llvm.host_features(), this_cpu(llvm)};
    if (!llvm.knows_cpu(wanted.c_str()))
        throw UserError(
            "$cpu_arch {}: LLVM {} knows no such CPU; give one of its names (x86-64-v2, "
            "x86-64-v3, "
            "x86-64-v4, znver4, sapphirerapids, ...), or leave it out for this machine's",
            wanted, llvm.version());
    return {wanted, "", wanted};
}

std::string compiler_name(const LlvmLibrary& llvm, const HostCpu& cpu) {
    return fmt::format("clang {}{}{}", llvm.version(), kInProcess, cpu.words);
}

// Code for a CPU with features that this machine lacks would end in an illegal instruction.
// `here`: this_cpu().
void check_runs_here(const LlvmLibrary& llvm, const std::string& here,
                     const CompiledKernel& kernel) {
    size_t at = kernel.compiler.find(kInProcess);
    if (at == std::string::npos) return;
    std::string cpu = kernel.compiler.substr(at + kInProcess.size());
    if (cpu == here) return;
    cpu = cpu.substr(0, cpu.find(kWithout));
    const std::string missing = missing_here(llvm, cpu);
    if (!missing.empty())
        throw UserError(
            "kernels compiled for $cpu_arch {} cannot run here: this machine's {} lacks {}; leave "
            "$cpu_arch out to run, or use $compile_only, which runs nothing",
            cpu, llvm.host_cpu(), missing);
}

class HostCompiler final : public KernelCompiler {
public:
    explicit HostCompiler(const std::string& cpu_arch)
        : llvm_(llvm_library()), cpu_(choose_cpu(llvm_, cpu_arch)) {}

    std::string name() const override { return compiler_name(llvm_, cpu_); }

    std::string key() const override {
        return Digest()
            .add(std::string_view(llvm_.options()))
            .add(std::string_view(llvm_.version()))
            .add(name())  // which loading looks at
            .add(std::string_view(cpu_.features))
            .hex();
    }

    CompiledKernel compile(const Kernel& kernel) const override {
        LlvmResult result(llvm_);
        llvm_.compile(kernel.source.data(), kernel.source.size(), (kernel.name + ".cpp").c_str(),
                      cpu_.name.c_str(), cpu_.features.c_str(), result.out());
        CompiledKernel compiled = result.take(kernel.name, cpu_.name, kernel.source);
        compiled.compiler = name();
        compiled.measured.known = true;
        return compiled;
    }

private:
    const LlvmLibrary& llvm_;
    HostCpu cpu_;
};

class HostKernels final : public LoadedKernels {
public:
    HostKernels(const LlvmLibrary& llvm, const std::vector<CompiledKernel>& kernels) : llvm_(llvm) {
        std::vector<const void*> objects;
        std::vector<size_t> sizes;
        std::vector<const char*> entries;
        for (const CompiledKernel& kernel : kernels) {
            objects.push_back(kernel.object.data());
            sizes.push_back(kernel.object.size());
            entries.push_back(kernel.name.c_str());
        }
        functions_.resize(kernels.size());
        char* log = nullptr;
        handle_ = llvm_.load(objects.data(), sizes.data(), entries.data(), kernels.size(),
                             functions_.data(), &log);
        std::string reason = log ? log : "";
        if (log) llvm_.free_log(log);
        if (!handle_ && reason.find(std::strerror(ENOMEM)) != std::string::npos)
            throw UserError("this host has no memory left to load compiled kernels into");
        CLEAVE_CHECK(handle_) << "compiled kernels do not link: " << reason;
    }
    ~HostKernels() override {
        if (handle_) llvm_.unload(handle_);
    }
    HostKernels(const HostKernels&) = delete;
    HostKernels& operator=(const HostKernels&) = delete;

    HostEntry entry(size_t i) const override {
        return reinterpret_cast<HostEntry>(functions_.at(i));
    }

private:
    const LlvmLibrary& llvm_;
    void* handle_ = nullptr;
    std::vector<void*> functions_;
};

std::string enabled_features(const std::string& features) {
    std::string text;
    for (size_t at = 0; at < features.size();) {
        size_t end = std::min(features.find(',', at), features.size());
        if (features[at] == '+')
            text += (text.empty() ? "" : " ") + features.substr(at + 1, end - at - 1);
        at = end + 1;
    }
    return text;
}

}  // namespace

std::unique_ptr<KernelCompiler> make_host_compiler(const std::string& cpu_arch) {
    return std::make_unique<HostCompiler>(cpu_arch);
}

std::unique_ptr<LoadedKernels> load_host_kernels(const std::vector<CompiledKernel>& kernels) {
    const LlvmLibrary& llvm = llvm_library();
    const std::string here = this_cpu(llvm);
    for (const CompiledKernel& kernel : kernels) check_runs_here(llvm, here, kernel);
    return std::make_unique<HostKernels>(llvm, kernels);
}

HostCompilerInfo host_compiler_info() {
    const LlvmLibrary& llvm = find_llvm_library();
    HostCompilerInfo info;
    info.available = llvm.available;
    info.reason = llvm.reason;
    if (!llvm.available) return info;
    info.version = llvm.version();
    info.cpu = llvm.host_cpu();
    info.features = enabled_features(llvm.host_features());
    return info;
}

}  // namespace cleave::codegen
