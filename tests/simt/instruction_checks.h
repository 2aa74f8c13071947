// SPDX-License-Identifier: Apache-2.0
// Small kernels that each use one leaf of the prelude: matrix instructions of a warp and of a
// warpgroup, what crosses lanes, atomics, numbers. In: whoever compiles and runs a kernel, an
// imitated GPU or a real one; out: what was wrong, empty for nothing.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "codegen/kernel/occupancy.h"
#include "runtime/device/device.h"

namespace cleave::test {

// One block of `threads`. Arguments: the buffers in order, then the integers.
struct SmallLaunch {
    std::string source, entry;
    int threads = 32;
    int64_t dynamic_bytes = 0;
    std::vector<std::vector<std::byte>> buffers;
    std::vector<uint64_t> integers = {};
};
// Runs it and writes what the buffers then hold; a message where something was reported.
using RunSmall = std::function<std::string(SmallLaunch&)>;
// Threads in the order of the seed (0: by index).
RunSmall on_simt(const std::string& arch, uint64_t seed = 0, bool checks = true);
// With the compiler that a run on the device would use, or the one of that name.
RunSmall on_device(runtime::Device& device, const std::string& arch, const std::string& compiler);

// The product of two 16 x 16 tiles by the arch's matrix instruction, entries in_f16 and in_bf16,
// and in_f32 where it has that.
std::string product_source();
// [64, columns] = a [64, 64] b [columns, 64] transposed, by a warpgroup, in two steps of 32: A
// through shared memory, or in registers with b one depth a row.
std::string warpgroup_source(int columns, bool in_registers);
SmallLaunch warpgroup_launch(const std::string& source, int columns, bool brain);

std::string wrong_in_products(const codegen::GpuArch& arch, const RunSmall& run);
std::string wrong_in_warpgroup_product(int columns, bool in_registers, bool brain,
                                       const RunSmall& run);
// What lanes tell each other, atomics and asynchronous copies.
std::string wrong_in_lanes(const codegen::GpuArch& arch, const RunSmall& run);
// Functions and conversions.
std::string wrong_in_numbers(const RunSmall& run);
// All that the architecture has.
std::string wrong_in_instructions(const codegen::GpuArch& arch, const RunSmall& run);

}  // namespace cleave::test
