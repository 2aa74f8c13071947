// SPDX-License-Identifier: Apache-2.0
// NumPy's .npy files, version 1.0 to 3.0: one tensor each. Little-endian f32, f16, f64, integers up
// to 64 bits, and bool; row major. Format:
// numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <string>

#include "runtime/execute/tensor.h"

namespace cleave::tools {

// UserError naming the file for one that is no .npy file, is cut short, or holds a type without a
// Cleave name.
runtime::Tensor read_npy(const std::string& name, const std::string& path);

// UserError for types that NumPy has no name for: bf16, f8e4m3, int4.
void write_npy(const runtime::Tensor& tensor, const std::string& path);

}  // namespace cleave::tools
