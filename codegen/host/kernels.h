// SPDX-License-Identifier: Apache-2.0
// A spec -> the host kernel: source, entry name, hash, launch and claims.
#pragma once

#include <string>
#include <vector>

#include "codegen/kernel/program.h"
#include "codegen/kernel/spec.h"

namespace cleave::codegen {

// `kind` and `fused` (operator kinds in order) name it. UserError when a dtype is none that host
// kernels read, a head size is odd, or weights that share x disagree on dynamic activations;
// InternalError when the kernel needs more scratch than the plan's tile claims.
Kernel make_host_kernel(const KernelSpec& spec, planner::KernelKind kind,
                        const std::vector<std::string>& fused, const HostTarget& target);

}  // namespace cleave::codegen
