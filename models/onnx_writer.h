// SPDX-License-Identifier: Apache-2.0
// Writes an ONNX Llama of a shape: `cleave model SHAPE -o DIR`.
#pragma once

#include <cstdint>
#include <string>

#include "models/shapes.h"

namespace cleave::models {

struct WriteOptions {
    enum class Weights { kNone, kRandom } weights = Weights::kRandom;
    DType dtype = DType::kF32;
    uint64_t seed = 0;
    enum class Form { kOpset17, kOpset23, kGroupQueryAttention } form = Form::kOpset17;  // decomposed / Attention / contrib
    bool with_past = true;
    bool external_data = true;  // model.onnx.data beside model.onnx; false: inline
};

// Writes DIR/model.onnx (and .data, config.json), each to a temporary name first. Random weights are normal with
// standard deviation 1/sqrt(in_features), from a counter on (seed, tensor, index). Returns the model's path.
std::string write_onnx_llama(const Shape& shape, const std::string& directory, const WriteOptions& options);

}  // namespace cleave::models
