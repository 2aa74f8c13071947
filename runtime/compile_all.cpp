// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile_all.h"

#include <map>
#include <string>
#include <utility>

namespace cleave::runtime {

using codegen::CompiledKernel;
using codegen::Kernel;
using codegen::Program;

std::vector<std::vector<CompiledKernel>> compile_all(std::span<const Program> programs,
                                                     const codegen::CompileOptions& options) {
    // One program for each arch with every distinct kernel of that arch. The entry's name is part of the source,
    // so equal hashes are equal entries.
    std::map<std::string, Program> merged;
    std::map<std::pair<std::string, std::string>, size_t>
        position;  // (arch, hash) -> kernel of `merged`
    for (const Program& program : programs) {
        Program& all = merged[program.arch];
        all.arch = program.arch;
        all.device = program.device;
        for (const Kernel& kernel : program.kernels) {
            if (position.try_emplace({program.arch, kernel.hash}, all.kernels.size()).second) {
                all.kernels.push_back(kernel);
            }
        }
    }
    std::map<std::string, std::vector<CompiledKernel>> compiled;
    for (const auto& [arch, program] : merged) compiled[arch] = compile_program(program, options);
    std::vector<std::vector<CompiledKernel>> by_device;
    for (const Program& program : programs) {
        std::vector<CompiledKernel>& mine = by_device.emplace_back();
        for (const Kernel& kernel : program.kernels) {
            mine.push_back(compiled[program.arch][position.at({program.arch, kernel.hash})]);
        }
    }
    return by_device;
}

}  // namespace cleave::runtime
