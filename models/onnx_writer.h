// SPDX-License-Identifier: Apache-2.0
// Writes an ONNX Llama of a shape: `cleave model SHAPE -o DIR`, and the small models of the
// importer's tests. Each form is what one family of exporters writes; models/onnx_forms.cpp has
// their graphs.
#pragma once

#include <cstdint>
#include <string>

#include "models/shapes.h"
#include "runtime/base/cancel.h"

namespace cleave::models {

enum class OnnxForm : uint8_t {
    kDecomposed,  // opset 17: MatMul, Softmax, Slice and Concat, as torch's exporters write
    kAttention,   // opset 23: RMSNormalization, RotaryEmbedding, Attention
    kGroupQueryAttention,  // com.microsoft: GroupQueryAttention, SkipSimplifiedLayerNormalization
    kFunctions,            // opset 18: the decomposed form with model-local functions
};

struct WriteOptions {
    enum class Weights : uint8_t { kNone, kRandom } weights = Weights::kRandom;
    DType dtype = DType::kF32;  // f32, f16 or bf16
    uint64_t seed = 0;
    OnnxForm form = OnnxForm::kDecomposed;
    bool with_past = true;          // past_key_values.N.{key,value} in, present.N.{key,value} out
    bool with_position_ids = true;  // else positions count from the past's length
    bool external_data = true;      // model.onnx.data beside model.onnx; false: inline (below 2 GB)
    // As Hugging Face stores them: matrices [out, in], under their names there. cos and sin are
    // computed from positions, so that no table is stored.
    bool as_hugging_face = false;
    const CancelToken* cancel = nullptr;
};

// Writes DIR/model.onnx, its data and config.json, each to a temporary name first and then renamed.
// Random weights have mean 0 and standard deviation 1/sqrt(in_features), from a counter on (seed,
// tensor, index): the same on every machine. Returns the model's path. UserError when the folder
// cannot be written or the form cannot express the shape.
std::string write_onnx_llama(const Shape& shape, const std::string& directory,
                             const WriteOptions& options);

}  // namespace cleave::models
