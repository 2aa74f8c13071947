// SPDX-License-Identifier: Apache-2.0
// Plans of whole models for GPUs that nobody has here, for tests of what codegen makes of them. In:
// the shape of a model, an architecture, how many devices share each layer; out: the plan, its
// first device's Program. And what such tests ask of a compiler, and of what it made.
#pragma once

#include <string>

#include "codegen/compile/compiler.h"
#include "codegen/kernel/occupancy.h"
#include "codegen/kernel/program.h"
#include "planner/plan/plan.h"

namespace cleave::test {

// For `devices` devices of `arch` in tensor parallelism that reach each other's memory, in bf16,
// contexts of 4096 tokens.
planner::Plan plan_for_arch(const std::string& shape, const codegen::GpuArch& arch, int devices);

codegen::Program program_for(const std::string& shape, const codegen::GpuArch& arch, int devices);

// "nvrtc", "hiprtc" or "clang", with the tests' cache.
codegen::CompileOptions through(const std::string& compiler);
// Why it cannot be used here; empty when it can.
std::string absence(const std::string& compiler);

// Of several kernels: how many, how many of them took a smaller tile than planned, and the most
// that one takes.
struct KernelTotals {
    int kernels = 0, shrunk = 0, spilling = 0;
    int64_t registers = 0, shared = 0, spills = 0;
    void add(const codegen::CompiledKernel& kernel);
};

}  // namespace cleave::test
