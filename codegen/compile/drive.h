// SPDX-License-Identifier: Apache-2.0
// The one loop that drives every compiler: a cache on disk, threads, progress, cancelling, and
// smaller tiles for objects that need more than there is. In: kernels; out: for each the kernel
// that was taken, and its object.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "codegen/compile/backend.h"
#include "codegen/compile/compiler.h"

namespace cleave::codegen {

struct TakenKernel {
    Kernel kernel;  // the one asked for, or the same with a smaller tile
    CompiledKernel object;
};

// In the order of `kernels`. The first failure stops the rest and reaches the caller. A kernel of a
// step whose object is over a limit of the compiler's arch or of `device` is compiled again with
// smaller tiles until one is within; InternalError naming kernel, resource, need and limit when
// none is. One that spills registers is, too, for three tiles at most; the fewest spills win.
std::vector<TakenKernel> drive(const KernelCompiler& compiler, std::span<const Kernel> kernels,
                               const planner::DeviceLimits& device, const CompileOptions& options);

// What a GPU's object says of itself, against the device's limits and the arch's, the smaller of
// each: resource, need and limit where it is over one, else empty. The tile's arithmetic has kept
// to the limits before; this is the second look, with the compiler's own numbers.
std::string over_limit(const Kernel& kernel, const CompiledKernel& compiled, const GpuArch& arch,
                       const planner::DeviceLimits& device = {});

}  // namespace cleave::codegen
