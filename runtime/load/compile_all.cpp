// SPDX-License-Identifier: Apache-2.0
#include "runtime/load/compile_all.h"

#include <map>
#include <string>
#include <tuple>
#include <utility>

namespace cleave::runtime {

using codegen::CompiledKernel;
using codegen::Kernel;
using codegen::Program;

std::vector<std::vector<CompiledKernel>> compile_all(std::span<const Program> programs,
                                                     const codegen::CompileOptions& options) {
    // One program for each arch, and limits of it, with every distinct kernel of its devices. The
    // entry's name is part of the source, so equal hashes are equal entries.
    using Target = std::tuple<std::string, int64_t, int64_t, int64_t>;
    const auto target_of = [](const Program& p) {
        return Target(p.arch, p.limits.shared_memory_per_block, p.limits.registers_per_block,
                      p.limits.max_threads_per_block);
    };
    std::map<Target, Program> merged;
    std::map<std::pair<Target, std::string>, size_t>
        position;  // (target, hash) -> kernel of `merged`
    for (const Program& program : programs) {
        const Target target = target_of(program);
        Program& all = merged[target];
        all.arch = program.arch;
        all.limits = program.limits;
        all.device = program.device;
        for (const Kernel& kernel : program.kernels) {
            if (position.try_emplace({target, kernel.hash}, all.kernels.size()).second) {
                all.kernels.push_back(kernel);
            }
        }
    }
    std::map<Target, std::vector<CompiledKernel>> compiled;
    for (const auto& [target, program] : merged)
        compiled[target] = compile_program(program, options);
    std::vector<std::vector<CompiledKernel>> by_device;
    for (const Program& program : programs) {
        std::vector<CompiledKernel>& mine = by_device.emplace_back();
        const Target target = target_of(program);
        for (const Kernel& kernel : program.kernels)
            mine.push_back(compiled[target][position.at({target, kernel.hash})]);
    }
    return by_device;
}

}  // namespace cleave::runtime
