// SPDX-License-Identifier: Apache-2.0
// What compiled GPU objects say of themselves: registers, shared memory, stack, spills, code,
// matrix instructions. In: an object of any compiler; out: the `measured` and counts of a
// CompiledKernel. Objects are read with care: one that is not what it should be leaves `known`
// false, never an exception.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "codegen/kernel/occupancy.h"
#include "codegen/kernel/program.h"

namespace cleave::codegen {

// A cubin: an ELF file of machine EM_CUDA. Spills are not in it: they are at most the stack, which
// is what is reported unless `log` (of ptxas -v) has them.
void measure_cubin(CompiledKernel& kernel, std::string_view log);

// Counts the matrix instructions of a PTX text: what is left of the loops once they are unrolled,
// as in the cubin.
void count_in_ptx(CompiledKernel& kernel, std::string_view ptx);

// An AMD code object, through libcleave_llvm; `known` stays false where that is missing.
void measure_code_object(CompiledKernel& kernel, const GpuArch& arch);

// Lines "NAME COUNT"; others are left out.
std::map<std::string, int64_t> parse_counts(std::string_view text);

}  // namespace cleave::codegen
