// SPDX-License-Identifier: Apache-2.0
// The ONNX graph of a Llama in each exporter's form: fills `builder`'s model with nodes, inputs and
// outputs, and records the weights that the writer must lay out.
#pragma once

#include "models/onnx_builder.h"
#include "models/onnx_writer.h"

namespace cleave::models {

inline constexpr const char* kFunctionDomain = "cleave.models";

// Adds RmsNorm(x, weight; epsilon) and Rope(x, cos, sin) to that domain.
void add_functions(onnx::ModelProto& model, OnnxBuilder& builder);

void build_onnx_graph(const Shape& shape, const WriteOptions& options, onnx::ModelProto& model,
                      OnnxBuilder& builder);

}  // namespace cleave::models
