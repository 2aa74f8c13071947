// SPDX-License-Identifier: Apache-2.0
#include "codegen/kernel_compiler.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "codegen/gpu_program.h"
#include "codegen/object_cache.h"
#include "codegen/simt_compiler.h"
#include "runtime/base/errors.h"
#include "runtime/base/hash.h"

namespace cleave::codegen {

namespace {

class CompileJob {
public:
    CompileJob(const KernelCompiler& compiler, const Program& program,
               const CompileOptions& options)
        : compiler_(compiler),
          kernels_(program.kernels),
          options_(options),
          cache_(options.cache_dir),
          compiled_(program.kernels.size()) {}

    std::vector<CompiledKernel> run() {
        auto wanted = static_cast<size_t>(std::max(options_.threads, 0));
        if (wanted == 0) wanted = std::max(1u, std::thread::hardware_concurrency());
        size_t count = std::min(wanted, kernels_.size());
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
            for (size_t i = next_++; i < kernels_.size() && !stop_; i = next_++) {
                if (options_.cancel) options_.cancel->throw_if_cancelled();
                compiled_[i] = obtain(kernels_[i]);
                std::lock_guard lock(mutex_);
                ++done_;
                if (options_.progress) options_.progress(done_, static_cast<int>(kernels_.size()));
            }
        } catch (...) {
            std::lock_guard lock(mutex_);
            stop_ = true;
            if (!failure_) failure_ = std::current_exception();
        }
    }

    CompiledKernel obtain(const Kernel& kernel) const {
        std::string key = Digest()
                              .add(std::string_view(kernel.source))
                              .add(std::string_view(compiler_.key()))
                              .hex();
        std::optional<CompiledKernel> compiled;
        if (options_.use_cache) compiled = cache_.find(key, kernel.name);
        if (!compiled) {
            compiled = compiler_.compile(kernel);
            if (options_.use_cache) cache_.store(key, *compiled);
        }
        compiled->measured.shared_bytes += kernel.launch.shared_bytes;
        return std::move(*compiled);
    }

    const KernelCompiler& compiler_;
    const std::vector<Kernel>& kernels_;
    const CompileOptions& options_;
    ObjectCache cache_;
    std::vector<CompiledKernel> compiled_;
    std::atomic<size_t> next_{0};
    std::atomic<bool> stop_{false};
    std::mutex mutex_;  // of `done_`, `failure_` and the progress callback
    int done_ = 0;
    std::exception_ptr failure_;
};

std::unique_ptr<KernelCompiler> hiprtc_or_clang(const GpuArch& arch,
                                                const CompileOptions& options) {
    std::string no_hiprtc;
    try {
        return make_hiprtc_compiler(arch, options);
    } catch (const UserError& error) {
        no_hiprtc = error.what();
    }
    try {
        return make_amdgpu_compiler(arch);
    } catch (const UserError& error) {
        throw UserError("no compiler for {}: {}; and {}", arch.name, no_hiprtc, error.what());
    }
}

[[noreturn]] void over_limit(const Kernel& kernel, const GpuArch& arch, std::string_view what,
                             int64_t need, int64_t limit) {
    throw InternalError(
        fmt::format("kernel {} was compiled for {} to {} {}, of which the device has {}; the "
                    "tile's arithmetic claimed {} bytes of shared memory",
                    kernel.name, arch.name, need, what, limit, kernel.claimed.shared_bytes));
}

}  // namespace

std::vector<CompiledKernel> compile_kernels(const KernelCompiler& compiler, const Program& program,
                                            const CompileOptions& options) {
    return CompileJob(compiler, program, options).run();
}

void check_resources(const Kernel& kernel, const CompiledKernel& compiled, const GpuArch& arch) {
    const Resources& r = compiled.measured;
    int64_t threads = 1;
    for (int size : kernel.launch.block) threads *= size;
    if (r.shared_bytes > arch.shared_bytes)
        over_limit(kernel, arch, "bytes of shared memory a block", r.shared_bytes,
                   arch.shared_bytes);
    if (!r.known) return;
    if (r.registers > arch.registers_per_thread)
        over_limit(kernel, arch, "registers a thread", r.registers, arch.registers_per_thread);
    // AMD's compilers are told the block's size and keep to its share of the file by themselves.
    if (arch.nvidia && r.registers * threads > arch.registers)
        over_limit(kernel, arch, "registers a block", r.registers * threads, arch.registers);
}

void throw_does_not_compile(const Kernel& kernel, const std::string& target,
                            const std::string& log) {
    throw InternalError(fmt::format("kernel {} does not compile for {}\n{}\n---- source\n{}",
                                    kernel.name, target, log, kernel.source));
}

std::unique_ptr<KernelCompiler> make_gpu_compiler(const GpuArch& arch,
                                                  const CompileOptions& options) {
    const std::string& wanted = options.gpu_compiler;
    if (arch.nvidia && (wanted.empty() || wanted == "nvrtc"))
        return make_nvrtc_compiler(arch, options);
    if (!arch.nvidia && wanted.empty()) return hiprtc_or_clang(arch, options);
    if (!arch.nvidia && wanted == "hiprtc") return make_hiprtc_compiler(arch, options);
    if (!arch.nvidia && wanted == "clang") return make_amdgpu_compiler(arch);
    throw UserError("'{}' compiles nothing for {}; that takes {}", wanted, arch.name,
                    arch.nvidia ? "nvrtc" : "hiprtc or clang");
}

std::vector<CompiledKernel> compile_program(const Program& program, const CompileOptions& options) {
    if (std::string_view arch = simt_arch_of(program.arch); !arch.empty())
        return compile_simt_program(
            program, gpu_arch(arch), options,
            {.checks = options.simt_checks, .defines = {}, .file_name = {}});
    const GpuArch* arch = find_gpu_arch(program.arch);
    if (!arch) return compile_kernels(*make_host_compiler(options), program, options);
    std::vector<CompiledKernel> compiled =
        compile_kernels(*make_gpu_compiler(*arch, options), program, options);
    for (size_t i = 0; i < compiled.size(); ++i)
        check_resources(program.kernels[i], compiled[i], *arch);
    return compiled;
}

}  // namespace cleave::codegen
