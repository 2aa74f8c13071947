// SPDX-License-Identifier: Apache-2.0
#include "codegen/simt_compiler.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "codegen/llvm_library.h"
#include "codegen/object_cache.h"
#include "codegen/simt_record.h"
#include "runtime/base/errors.h"
#include "runtime/base/hash.h"

namespace cleave::codegen {

CompiledKernel compile_simt_kernel(const std::string& source, const std::string& entry,
                                   const GpuArch& arch, const SimtCompileOptions& options) {
    const LlvmLibrary& llvm = llvm_library();
    std::vector<std::string> defines = options.defines;
    defines.push_back(arch_define(arch));
    std::vector<const char*> pointers;
    for (const std::string& define : defines) pointers.push_back(define.c_str());
    cleave_llvm_simt_options lowered{pointers.data(), pointers.size(), arch.warp_width,
                                     options.optimization, options.checks ? 1 : 0};
    std::string file = options.file_name.empty() ? entry + ".cu" : options.file_name;
    cleave_llvm_result result{};
    llvm.simt_compile(source.data(), source.size(), file.c_str(), entry.c_str(), &lowered, &result);
    std::string log = result.log ? result.log : "";
    if (!result.ok) {
        llvm.free_result(&result);
        throw InternalError(
            fmt::format("kernel {} does not compile for simt:{}\n{}\n---- source\n{}", entry,
                        arch.name, log, source));
    }
    CompiledKernel compiled;
    compiled.name = entry;
    compiled.compiler = fmt::format("clang {} (in-process), simt:{}", llvm.version(), arch.name);
    const auto* bytes = static_cast<const std::byte*>(result.object);
    compiled.object.assign(bytes, bytes + result.object_size);
    compiled.measured.code_bytes = result.code_bytes;
    compiled.measured.stack_bytes = result.stack_bytes;
    llvm.free_result(&result);
    return compiled;
}

namespace {

// Everything that the object depends on. The record's version stands for the passes and the prelude's calls.
std::string cache_key(const LlvmLibrary& llvm, const Kernel& kernel, const GpuArch& arch,
                      const SimtCompileOptions& options) {
    Digest digest;
    digest.add(std::string_view(kernel.source))
        .add(std::string_view(llvm.version()))
        .add(std::string_view(llvm.host_cpu()))
        .add(std::string_view(llvm.host_features()))
        .add(std::string_view(fmt::format("simt {} {} O{} {}", kSimtRecordVersion, arch.name,
                                          options.optimization, options.checks)));
    for (const std::string& define : options.defines) digest.add(std::string_view(define));
    return digest.hex();
}

}  // namespace

std::vector<CompiledKernel> compile_simt_program(const Program& program, const GpuArch& arch,
                                                 const CompileOptions& options,
                                                 const SimtCompileOptions& simt) {
    const LlvmLibrary& llvm = llvm_library();
    ObjectCache cache(options.cache_dir);
    std::vector<CompiledKernel> compiled(program.kernels.size());
    std::atomic<size_t> next{0};
    std::atomic<bool> stop{false};
    std::mutex mutex;  // of `done`, `failure` and the progress callback
    int done = 0;
    std::exception_ptr failure;
    auto obtain = [&](const Kernel& kernel) {
        std::string key = cache_key(llvm, kernel, arch, simt);
        std::optional<CompiledKernel> found;
        if (options.use_cache) found = cache.find(key, kernel.name);
        if (found) return std::move(*found);
        CompiledKernel fresh = compile_simt_kernel(kernel.source, kernel.name, arch, simt);
        if (options.use_cache) cache.store(key, fresh);
        return fresh;
    };
    auto work = [&] {
        try {
            for (size_t i = next++; i < compiled.size() && !stop; i = next++) {
                if (options.cancel) options.cancel->throw_if_cancelled();
                compiled[i] = obtain(program.kernels[i]);
                std::lock_guard lock(mutex);
                if (options.progress) options.progress(++done, static_cast<int>(compiled.size()));
            }
        } catch (...) {
            std::lock_guard lock(mutex);
            stop = true;
            if (!failure) failure = std::current_exception();
        }
    };
    size_t wanted = options.threads > 0 ? static_cast<size_t>(options.threads)
                                        : std::max(1u, std::thread::hardware_concurrency());
    std::vector<std::thread> threads;
    for (size_t i = 1; i < std::min(wanted, compiled.size()); ++i) threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();
    if (failure) std::rethrow_exception(failure);
    return compiled;
}

}  // namespace cleave::codegen
