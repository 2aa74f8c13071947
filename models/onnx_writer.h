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

// How q and k are rotated in the decomposed form. The last three turn neighbouring features.
enum class Rotation : uint8_t {
    kHalves,              // x * cos + concat(-x2, x1) * sin
    kHalvesApart,         // concat(x1 * cos - x2 * sin, x2 * cos + x1 * sin)
    kNeighboursSliced,    // as kHalves, of slices with step 2, stacked (GPT-J)
    kNeighboursPaired,    // reshaped to pairs, split, turned, stacked (llama2.c)
    kNeighboursGathered,  // the same, picked by index
};

// What single models of the family have, and ways of writing that only some exporters use: for
// tests of the importer. Each names the forms that can write it.
struct Variation {
    Rotation rotation = Rotation::kHalves;  // kDecomposed
    int64_t frequencies_change_at = 0;  // kDecomposed: halved once a position reaches it; 0: never
    double score_softcap = 0;           // kDecomposed: cap * tanh(scores / cap)
    double logits_softcap = 0;          // all
    double logits_divisor = 1;          // all
    double residual_factor = 1;         // all but kGroupQueryAttention
    bool norms_behind = false;          // RMSNorm behind attention and MLP too; likewise
    bool qk_norm = false;               // in kGroupQueryAttention: its own inputs; else in pieces
    bool joint_qk_norm = false;         // all but kGroupQueryAttention: over all heads (OLMo-2)
    bool cut_tables = false;            // kDecomposed: rows of table[:tokens so far]
    bool square_mask = false;           // kAttention: fits without a past, or one token after it
    bool static_cache = false;          // kAttention: TensorScatter, nonpad_kv_seqlen, opset 24
    bool ring_cache = false;            // kGroupQueryAttention: sliding_window_cache
    bool keys_first = false;            // all: every layer's keys before the values
    bool head = true;                   // all: else the last norm is the output
    int64_t batch = 0;                  // all: fixed; 0: free
};

struct WriteOptions {
    enum class Weights : uint8_t { kNone, kRandom } weights = Weights::kRandom;
    DType dtype = DType::kF32;  // f32, f16 or bf16
    uint64_t seed = 0;
    OnnxForm form = OnnxForm::kDecomposed;
    bool with_past = true;          // past_key_values.N.{key,value} in, present.N.{key,value} out
    bool with_position_ids = true;  // else positions count from the past's length
    bool external_data = true;      // model.onnx.data beside model.onnx; false: inline (below 2 GB)
    const CancelToken* cancel = nullptr;
    Variation variation;
};

// Writes DIR/model.onnx, its data and config.json, each to a temporary name first and then renamed.
// Random weights have mean 0 and standard deviation 1/sqrt(in_features), from a counter on (seed,
// tensor, index): the same on every machine. Returns the model's path. UserError when the folder
// cannot be written or the form cannot express the shape.
std::string write_onnx_llama(const Shape& shape, const std::string& directory,
                             const WriteOptions& options);

}  // namespace cleave::models
