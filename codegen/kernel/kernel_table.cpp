// SPDX-License-Identifier: Apache-2.0
#include "codegen/kernel/kernel_table.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/base/errors.h"

namespace cleave::codegen {

namespace {

void check_names(const Kernel& kernel, const std::vector<Arg>& args) {
    std::vector<std::string> names;
    for (const Arg& arg : args) names.push_back(arg.name);
    CLEAVE_CHECK(names == kernel.parameters)
        << kernel.name << " takes (" << fmt::format("{}", fmt::join(kernel.parameters, ", "))
        << "), and is given (" << fmt::format("{}", fmt::join(names, ", ")) << ")";
}

uint64_t constant_args(const Kernel& kernel, const std::vector<Arg>& args) {
    constexpr size_t kBits = 64;
    CLEAVE_CHECK(args.size() <= kBits || !kernel.launch.overlaps)
        << kernel.name << " takes " << args.size() << " arguments";
    uint64_t mask = 0;
    for (size_t i = 0; i < std::min(args.size(), kBits); ++i)
        if (args[i].kind == ArgKind::kWeight || args[i].kind == ArgKind::kRopeTable)
            mask |= uint64_t{1} << i;
    return mask;
}

}  // namespace

Instruction KernelTable::launch(planner::StepId step, Kernel kernel, std::vector<Arg> args) {
    const auto [at, fresh] =
        index_.try_emplace(kernel.name, static_cast<int>(program_.kernels.size()));
    if (fresh) {
        kernel.launch.constant_args = constant_args(kernel, args);
        program_.kernels.push_back(std::move(kernel));
    }
    return launch(step, at->second, std::move(args));
}

Instruction KernelTable::launch(planner::StepId step, int kernel, std::vector<Arg> args) {
    check_names(program_.kernels[static_cast<size_t>(kernel)], args);
    return {step, kernel, std::move(args)};
}

}  // namespace cleave::codegen
