// SPDX-License-Identifier: Apache-2.0
#include "codegen/compile/drive.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "codegen/compile/object_cache.h"
#include "codegen/gpu/kernels.h"
#include "runtime/base/errors.h"
#include "runtime/base/hash.h"
#include "runtime/base/threads.h"

namespace cleave::codegen {

namespace {

class CompileJob {
public:
    CompileJob(const KernelCompiler& compiler, std::span<const Kernel> kernels,
               const planner::DeviceLimits& device, const CompileOptions& options)
        : compiler_(compiler),
          kernels_(kernels),
          device_(device),
          options_(options),
          cache_(options.cache_dir),
          taken_(kernels.size()) {}

    std::vector<TakenKernel> run() {
        auto wanted = static_cast<size_t>(std::max(options_.threads, 0));
        if (wanted == 0) wanted = std::max(1u, std::thread::hardware_concurrency());
        size_t count = std::min(wanted, kernels_.size());
        Threads threads([this] { stop_ = true; });
        for (size_t i = 1; i < count; ++i) threads.start([this] { work(); });
        work();
        threads.join();
        if (failure_) std::rethrow_exception(failure_);
        return std::move(taken_);
    }

private:
    void work() {
        try {
            for (size_t i = next_++; i < kernels_.size() && !stop_; i = next_++) {
                if (options_.cancel) options_.cancel->throw_if_cancelled();
                taken_[i] = take(kernels_[i]);
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
        const std::string made_from = compiler_.key() + "\n" + kernel.source;
        const std::string key = Digest().add(std::string_view(made_from)).hex();
        std::optional<CompiledKernel> compiled;
        if (options_.use_cache) compiled = cache_.find(key, kernel.name, made_from);
        if (!compiled) {
            compiled = compiler_.compile(kernel);
            if (options_.use_cache) cache_.store(key, *compiled, made_from);
        }
        compiled->measured.shared_bytes += kernel.launch.shared_bytes;
        return std::move(*compiled);
    }

    // With the kernel's own tile, or the first smaller one that is within the limits and spills
    // least.
    TakenKernel take(const Kernel& kernel) const {
        constexpr int kMostTriesForSpills = 3;
        const GpuArch* arch = compiler_.limits();
        if (!arch) return {kernel, obtain(kernel)};
        std::optional<TakenKernel> best;
        std::vector<std::string> given_up;
        size_t before_best = 0;  // of `given_up`
        std::optional<Kernel> now = kernel;
        for (int spilling = 0; now; now = with_smaller_tile(*now)) {
            CompiledKernel compiled = obtain(*now);
            const std::string over = over_limit(*now, compiled, *arch, device_);
            const int64_t spills = compiled.measured.spill_bytes;
            if (over.empty() && (!best || spills < best->object.measured.spill_bytes)) {
                best = {*now, std::move(compiled)};
                before_best = given_up.size();
            }
            if (over.empty() && (spills == 0 || ++spilling == kMostTriesForSpills)) break;
            given_up.push_back(
                fmt::format("{}, {} bytes of shared memory: {}",
                            describe_tile(now->kind, now->tile), now->tile.shared_bytes,
                            over.empty() ? fmt::format("{} bytes spilled", spills) : over));
        }
        if (!best)
            throw InternalError(fmt::format("kernel {} is over a limit of {} with every tile: {}",
                                            kernel.name, arch->name, fmt::join(given_up, "; ")));
        given_up.resize(before_best);
        best->object.given_up = std::move(given_up);
        return std::move(*best);
    }

    const KernelCompiler& compiler_;
    std::span<const Kernel> kernels_;
    const planner::DeviceLimits& device_;
    const CompileOptions& options_;
    ObjectCache cache_;
    std::vector<TakenKernel> taken_;
    std::atomic<size_t> next_{0};
    std::atomic<bool> stop_{false};
    std::mutex mutex_;  // of `done_`, `failure_` and the progress callback
    int done_ = 0;
    std::exception_ptr failure_;
};

std::string need_and_limit(std::string_view what, int64_t need, int64_t limit) {
    return fmt::format("{} {}, of which the device has {}", need, what, limit);
}

}  // namespace

std::vector<TakenKernel> drive(const KernelCompiler& compiler, std::span<const Kernel> kernels,
                               const planner::DeviceLimits& device, const CompileOptions& options) {
    return CompileJob(compiler, kernels, device, options).run();
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

void throw_does_not_compile(std::string_view entry, std::string_view target, std::string_view log,
                            std::string_view source) {
    throw InternalError(fmt::format("kernel {} does not compile for {}\n{}\n---- source\n{}", entry,
                                    target, log, source));
}

}  // namespace cleave::codegen
