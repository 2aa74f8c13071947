// SPDX-License-Identifier: Apache-2.0
#include "codegen/compiler.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "codegen/gpu_arch.h"
#include "codegen/gpu_program.h"
#include "codegen/llvm_library.h"
#include "codegen/object_cache.h"
#include "codegen/simt_compiler.h"
#include "runtime/base/errors.h"
#include "runtime/base/hash.h"

namespace cleave::codegen {

namespace {

// CPU and features that kernels are compiled for.
struct HostCpu {
    std::string name, features;
};

HostCpu choose_cpu(const LlvmLibrary& llvm, const std::string& wanted) {
    if (wanted.empty()) return {llvm.host_cpu(), llvm.host_features()};
    if (!llvm.knows_cpu(wanted.c_str()))
        throw UserError(
            "--cpu-arch {}: LLVM {} knows no such CPU; give one of its names (x86-64-v2, "
            "x86-64-v3, "
            "x86-64-v4, znver4, sapphirerapids, ...), or leave it out for this machine's",
            wanted, llvm.version());
    return {wanted, ""};
}

constexpr std::string_view kInProcess = " (in-process), ";

std::string compiler_name(const LlvmLibrary& llvm, const HostCpu& cpu) {
    return fmt::format("clang {}{}{}", llvm.version(), kInProcess, cpu.name);
}

// Code for a CPU with features that this machine lacks would end in an illegal instruction.
void check_runs_here(const LlvmLibrary& llvm, const CompiledKernel& kernel) {
    size_t at = kernel.compiler.find(kInProcess);
    if (at == std::string::npos) return;
    std::string cpu = kernel.compiler.substr(at + kInProcess.size());
    if (cpu == llvm.host_cpu()) return;
    char* text = llvm.missing_features(cpu.c_str(), llvm.host_features());
    std::string missing = text ? text : "";
    llvm.free_log(text);
    if (!missing.empty())
        throw UserError(
            "kernels compiled for --cpu-arch {} cannot run here: this machine's {} lacks {}; leave "
            "--cpu-arch out to run, or use `cleave emit --compile`, which runs nothing",
            cpu, llvm.host_cpu(), missing);
}

std::string cache_key(const LlvmLibrary& llvm, const HostCpu& cpu, const Kernel& kernel) {
    return Digest()
        .add(std::string_view(kernel.source))
        .add(std::string_view(llvm.options()))
        .add(std::string_view(llvm.version()))
        .add(std::string_view(cpu.name))
        .add(std::string_view(cpu.features))
        .hex();
}

CompiledKernel compile_one(const LlvmLibrary& llvm, const HostCpu& cpu, const Kernel& kernel) {
    cleave_llvm_result result{};
    llvm.compile(kernel.source.data(), kernel.source.size(), (kernel.name + ".cpp").c_str(),
                 cpu.name.c_str(), cpu.features.c_str(), &result);
    std::string log = result.log ? result.log : "";
    if (!result.ok) {
        llvm.free_result(&result);
        throw InternalError(fmt::format("kernel {} does not compile for {}\n{}\n---- source\n{}",
                                        kernel.name, cpu.name, log, kernel.source));
    }
    CompiledKernel compiled;
    compiled.name = kernel.name;
    compiled.compiler = compiler_name(llvm, cpu);
    const auto* bytes = static_cast<const std::byte*>(result.object);
    compiled.object.assign(bytes, bytes + result.object_size);
    compiled.measured.code_bytes = result.code_bytes;
    compiled.measured.stack_bytes = result.stack_bytes;
    compiled.measured.known = true;
    llvm.free_result(&result);
    return compiled;
}

// One pass over all kernels by several threads; the first failure stops the others and reaches the caller.
class CompileJob {
public:
    CompileJob(const Program& program, const CompileOptions& options)
        : program_(program),
          options_(options),
          llvm_(llvm_library()),
          cpu_(choose_cpu(llvm_, options.cpu_arch)),
          cache_(options.cache_dir),
          compiled_(program.kernels.size()) {}

    std::vector<CompiledKernel> run() {
        auto wanted = static_cast<size_t>(std::max(options_.threads, 0));
        if (wanted == 0) wanted = std::max(1u, std::thread::hardware_concurrency());
        size_t count = std::min(wanted, program_.kernels.size());
        std::vector<std::thread> threads;
        for (size_t i = 1; i < count; ++i) threads.emplace_back([this] { work(); });
        work();
        for (std::thread& thread : threads) thread.join();
        if (failure_) std::rethrow_exception(failure_);
        return std::move(compiled_);
    }

private:
    void work() {
        try {
            for (size_t i = next_++; i < program_.kernels.size() && !stop_; i = next_++) {
                if (options_.cancel) options_.cancel->throw_if_cancelled();
                compiled_[i] = obtain(program_.kernels[i]);
                std::lock_guard lock(mutex_);
                ++done_;
                if (options_.progress)
                    options_.progress(done_, static_cast<int>(program_.kernels.size()));
            }
        } catch (...) {
            std::lock_guard lock(mutex_);
            stop_ = true;
            if (!failure_) failure_ = std::current_exception();
        }
    }

    CompiledKernel obtain(const Kernel& kernel) const {
        std::string key = cache_key(llvm_, cpu_, kernel);
        std::optional<CompiledKernel> compiled;
        if (options_.use_cache) compiled = cache_.find(key, kernel.name);
        if (!compiled) {
            compiled = compile_one(llvm_, cpu_, kernel);
            if (options_.use_cache) cache_.store(key, *compiled);
        }
        compiled->measured.shared_bytes = kernel.launch.shared_bytes;
        return std::move(*compiled);
    }

    const Program& program_;
    const CompileOptions& options_;
    const LlvmLibrary& llvm_;
    HostCpu cpu_;
    ObjectCache cache_;
    std::vector<CompiledKernel> compiled_;
    std::atomic<size_t> next_{0};
    std::atomic<bool> stop_{false};
    std::mutex mutex_;
    int done_ = 0;
    std::exception_ptr failure_;
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
        CHECK(handle_) << "compiled kernels do not link: " << reason;
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

std::vector<CompiledKernel> compile_program(const Program& program, const CompileOptions& options) {
    if (std::string_view arch = simt_arch_of(program.arch); !arch.empty())
        return compile_simt_program(
            program, gpu_arch(arch), options,
            {.checks = options.simt_checks, .defines = {}, .file_name = {}});
    if (find_gpu_arch(program.arch))
        throw UserError(
            "kernels for {} cannot be compiled: this build compiles for hosts and for the CPU's "
            "imitation of GPUs, for example --devices simt:{}[0]; without --compile, `cleave emit` "
            "prints their sources",
            program.arch, program.arch);
    return CompileJob(program, options).run();
}

std::unique_ptr<LoadedKernels> load_host_kernels(const std::vector<CompiledKernel>& kernels) {
    const LlvmLibrary& llvm = llvm_library();
    for (const CompiledKernel& kernel : kernels) check_runs_here(llvm, kernel);
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
