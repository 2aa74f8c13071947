// SPDX-License-Identifier: Apache-2.0
#include "codegen/compile/compiler.h"

#include <string_view>
#include <tuple>
#include <utility>

#include "codegen/compile/choose.h"
#include "codegen/compile/drive.h"

namespace cleave::codegen {

namespace {

// Devices of equal arch and limits share their compiler and their kernels.
struct Target {
    std::vector<Kernel> kernels;                // distinct ones
    std::map<std::string_view, size_t> places;  // by source: the entry's name is part of it
    std::vector<size_t> programs;
};

using TargetKey = std::tuple<std::string, int64_t, int64_t, int64_t>;

TargetKey key_of(const Program& p) {
    return {p.arch, p.limits.shared_memory_per_block, p.limits.registers_per_block,
            p.limits.max_threads_per_block};
}

}  // namespace

std::vector<CompiledProgram> compile(std::span<const Program> programs,
                                     const CompileOptions& options) {
    std::map<TargetKey, Target> targets;
    for (size_t i = 0; i < programs.size(); ++i) {
        Target& target = targets[key_of(programs[i])];
        target.programs.push_back(i);
        for (const Kernel& kernel : programs[i].kernels)
            if (target.places.try_emplace(kernel.source, target.kernels.size()).second)
                target.kernels.push_back(kernel);
    }
    std::vector<CompiledProgram> compiled(programs.size());
    for (const auto& [key, target] : targets) {
        const Program& first = programs[target.programs.front()];
        const std::vector<TakenKernel> taken =
            drive(*choose_compiler(first.arch, options), target.kernels, first.limits, options);
        for (size_t i : target.programs) {
            compiled[i].program = programs[i];
            for (Kernel& kernel : compiled[i].program.kernels) {
                const TakenKernel& t = taken[target.places.at(kernel.source)];
                compiled[i].objects.push_back(t.object);
                if (t.kernel.source != kernel.source) kernel = t.kernel;
            }
        }
    }
    return compiled;
}

CompiledProgram compile(const Program& program, const CompileOptions& options) {
    return std::move(compile(std::span(&program, 1), options).front());
}

}  // namespace cleave::codegen
