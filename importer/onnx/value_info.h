// SPDX-License-Identifier: Apache-2.0
// Declares inputs and outputs of ONNX graphs that Cleave writes.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <onnx/onnx_pb.h>

namespace cleave::importer {

// A number, or the name of a size that differs from run to run.
using OnnxDims = std::vector<std::variant<int64_t, std::string>>;

// Makes it a tensor of `type` (TensorProto.DataType); no dims: a scalar.
void set_tensor_type(onnx::ValueInfoProto& info, int type, const OnnxDims& dims);

}  // namespace cleave::importer
