// SPDX-License-Identifier: Apache-2.0
#include "codegen/compile/compile_program.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "codegen/compile/object_cache.h"
#include "codegen/compile/simt.h"
#include "codegen/gpu/program.h"
#include "codegen/kernel/spec.h"
#include "runtime/base/environment.h"
#include "runtime/base/errors.h"
#include "runtime/base/hash.h"

namespace cleave::codegen {

namespace {

class CompileJob {
public:
    CompileJob(const KernelCompiler& compiler, const Program& program,
               const CompileOptions& options, const GpuArch* arch)
        : compiler_(compiler),
          kernels_(program.kernels),
          options_(options),
          arch_(arch),
          limits_(program.limits),
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
                compiled_[i] = arch_ ? obtain_within_limits(kernels_[i]) : obtain(kernels_[i]);
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

    // With the kernel's own tile, or the first smaller one that is within the limits and spills
    // least.
    CompiledKernel obtain_within_limits(const Kernel& kernel) const {
        constexpr int kMostTriesForSpills = 3;
        std::optional<CompiledKernel> best;
        std::vector<std::string> given_up;
        size_t before_best = 0;  // of `given_up`
        auto now = std::make_shared<const Kernel>(kernel);
        for (int spilling = 0;;) {
            CompiledKernel compiled = obtain(*now);
            const std::string over = over_limit(*now, compiled, *arch_, limits_);
            const int64_t spills = compiled.measured.spill_bytes;
            if (over.empty() && (!best || spills < best->measured.spill_bytes)) {
                compiled.instead = now->hash == kernel.hash ? nullptr : now;
                best = std::move(compiled);
                before_best = given_up.size();
            }
            if (over.empty() && spills == 0) break;
            given_up.push_back(
                fmt::format("{}, {} bytes of shared memory: {}",
                            describe_tile(now->kind, now->tile), now->tile.shared_bytes,
                            over.empty() ? fmt::format("{} bytes spilled", spills) : over));
            if (over.empty() && ++spilling == kMostTriesForSpills) break;
            if (!now->smaller) break;
            now = std::make_shared<const Kernel>(now->smaller());
        }
        if (!best)
            throw InternalError(fmt::format("kernel {} is over a limit of {} with every tile: {}",
                                            kernel.name, arch_->name, fmt::join(given_up, "; ")));
        given_up.resize(before_best);
        best->given_up = std::move(given_up);
        return std::move(*best);
    }

    const KernelCompiler& compiler_;
    const std::vector<Kernel>& kernels_;
    const CompileOptions& options_;
    const GpuArch* arch_;
    const planner::DeviceLimits limits_;
    ObjectCache cache_;
    std::vector<CompiledKernel> compiled_;
    std::atomic<size_t> next_{0};
    std::atomic<bool> stop_{false};
    std::mutex mutex_;  // of `done_`, `failure_` and the progress callback
    int done_ = 0;
    std::exception_ptr failure_;
};

// A compiler of GPUs, by the name that VendorFacts and users give it.
struct GpuCompiler {
    std::string_view name;
    std::unique_ptr<KernelCompiler> (*make)(const GpuArch&, const CompileOptions&);
    GpuCompilerInfo (*info)(const CompileOptions&);
    const char *title, *purpose, *fix;  // as GpuCompilerInfo has them
};
constexpr GpuCompiler kGpuCompilers[] = {
    {"nvrtc", make_nvrtc_compiler, nvrtc_info, "NVRTC", "kernels for NVIDIA GPUs",
     "install the CUDA toolkit, or PyPI's nvidia-cuda-nvrtc"},
    {"hiprtc", make_hiprtc_compiler, hiprtc_info_with_archs, "hipRTC", "kernels for AMD GPUs",
     "install ROCm's hipRTC, or run tools/setup; without it Clang compiles for AMD GPUs"},
    {"clang", [](const GpuArch& arch, const CompileOptions&) { return make_amdgpu_compiler(arch); },
     [](const CompileOptions&) { return amdgpu_clang_info(); }, "Clang for AMD",
     "AMD GPUs that hipRTC does not know",
     "install LLVM and Clang 19 with AMD GPUs, or run tools/setup"},
};

std::unique_ptr<KernelCompiler> make_named(std::string_view name, const GpuArch& arch,
                                           const CompileOptions& options) {
    const auto* found = std::find_if(std::begin(kGpuCompilers), std::end(kGpuCompilers),
                                     [&](const GpuCompiler& c) { return c.name == name; });
    CHECK(found != std::end(kGpuCompilers)) << "no GPU compiler is called " << name;
    return found->make(arch, options);
}

// The first of the vendor's that is there and knows the architecture.
std::unique_ptr<KernelCompiler> make_preferred(const GpuArch& arch, const CompileOptions& options) {
    const auto names = planner::vendor_facts(arch.vendor).compilers;
    if (names.size() == 1) return make_named(names.front(), arch, options);
    std::string reasons;
    for (const std::string_view name : names) {
        try {
            return make_named(name, arch, options);
        } catch (const MisnamedCompiler&) {
            throw;
        } catch (const UserError& error) {
            reasons += fmt::format("{}{}", reasons.empty() ? "" : "; and ", error.what());
        }
    }
    throw UserError("no compiler for {}: {}", arch.name, reasons);
}

std::string need_and_limit(std::string_view what, int64_t need, int64_t limit) {
    return fmt::format("{} {}, of which the device has {}", need, what, limit);
}

}  // namespace

std::vector<CompiledKernel> compile_kernels(const KernelCompiler& compiler, const Program& program,
                                            const CompileOptions& options, const GpuArch* arch) {
    return CompileJob(compiler, program, options, arch).run();
}

std::string over_limit(const Kernel& kernel, const CompiledKernel& compiled, const GpuArch& arch,
                       const planner::DeviceLimits& device) {
    const auto least = [](int64_t of_arch, int64_t of_device) {
        return of_device > 0 ? std::min(of_arch, of_device) : of_arch;
    };
    const Resources& r = compiled.measured;
    int64_t threads = 1;
    for (int size : kernel.launch.block) threads *= size;
    const int64_t most_threads = least(arch.max_threads, device.max_threads_per_block);
    if (threads > most_threads) return need_and_limit("threads a block", threads, most_threads);
    const int64_t shared = least(arch.shared_bytes, device.shared_memory_per_block);
    if (r.shared_bytes > shared)
        return need_and_limit("bytes of shared memory a block", r.shared_bytes, shared);
    if (!r.known) return "";
    if (r.registers > arch.registers_per_thread)
        return need_and_limit("registers a thread", r.registers, arch.registers_per_thread);
    const int64_t registers = least(arch.registers, device.registers_per_block);
    if (planner::vendor_facts(arch.vendor).registers_of_block && r.registers * threads > registers)
        return need_and_limit("registers a block", r.registers * threads, registers);
    return "";
}

void throw_does_not_compile(const Kernel& kernel, const std::string& target,
                            const std::string& log) {
    throw InternalError(fmt::format("kernel {} does not compile for {}\n{}\n---- source\n{}",
                                    kernel.name, target, log, kernel.source));
}

std::unique_ptr<KernelCompiler> make_gpu_compiler(const GpuArch& arch,
                                                  const CompileOptions& options) {
    const std::string& wanted = options.gpu_compiler;
    if (wanted.empty()) return make_preferred(arch, options);
    if (takes_compiler(arch, wanted)) return make_named(wanted, arch, options);
    throw UserError("'{}' compiles nothing for {}; that takes {}", wanted, arch.name,
                    fmt::join(planner::vendor_facts(arch.vendor).compilers, " or "));
}

std::vector<GpuCompilerInfo> gpu_compiler_infos(const CompileOptions& options) {
    std::vector<GpuCompilerInfo> infos;
    for (const GpuCompiler& compiler : kGpuCompilers) {
        GpuCompilerInfo& info = infos.emplace_back(compiler.info(options));
        info.title = compiler.title;
        info.purpose = compiler.purpose;
        info.fix = compiler.fix;
    }
    return infos;
}

bool takes_compiler(const GpuArch& arch, std::string_view name) {
    const auto names = planner::vendor_facts(arch.vendor).compilers;
    return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<CompiledKernel> compile_program(const Program& program, const CompileOptions& options) {
    if (std::string_view arch = simt_arch_of(program.arch); !arch.empty()) {
        const std::string& wanted = options.gpu_compiler;
        if (wanted == "nvrtc" || wanted == "hiprtc")
            throw UserError("'{}' compiles nothing for {}, which runs on the CPU; that takes clang",
                            wanted, program.arch);
        return compile_simt_program(
            program, gpu_arch(arch), options,
            {.checks = options.simt_checks, .defines = {}, .file_name = {}});
    }
    const GpuArch* arch = find_gpu_arch(program.arch);
    if (!arch) return compile_kernels(*make_host_compiler(options), program, options);
    // For what has no such flag: tools/gpu-check on the fakes of the vendors' drivers.
    if ((options.gpu_compiler.empty() ? environment("CLEAVE_GPU_COMPILER")
                                      : options.gpu_compiler) == "simt")
        return compile_simt_program(
            program, *arch, options,
            {.checks = options.simt_checks, .defines = {}, .file_name = {}});
    return compile_kernels(*make_gpu_compiler(*arch, options), program, options, arch);
}

}  // namespace cleave::codegen
