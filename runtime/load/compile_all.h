// SPDX-License-Identifier: Apache-2.0
// Compiles the programs of all devices, each distinct source once.
#pragma once

#include <span>
#include <vector>

#include "codegen/compile/compiler.h"

namespace cleave::runtime {

// By device, in the order of its program's kernels. Throws what codegen::compile_program throws.
std::vector<std::vector<codegen::CompiledKernel>> compile_all(
    std::span<const codegen::Program> programs, const codegen::CompileOptions& options);

}  // namespace cleave::runtime
