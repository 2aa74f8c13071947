// SPDX-License-Identifier: Apache-2.0
// Llama shapes by name, and from a Hugging Face config.json.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "importer/graph/graph.h"

namespace cleave::models {

// How q and k are rotated in the decomposed form. The last three turn neighbouring features, in
// the other forms of a folder too.
enum class Rotation : uint8_t {
    kHalves,              // x * cos + concat(-x2, x1) * sin
    kHalvesApart,         // concat(x1 * cos - x2 * sin, x2 * cos + x1 * sin)
    kNeighboursSliced,    // as kHalves, of slices with step 2, stacked (GPT-J)
    kNeighboursPaired,    // reshaped to pairs, split, turned, stacked (llama2.c)
    kNeighboursGathered,  // the same, picked by index
};

// Of queries: 1 + beta * log(1 + floor(position / length)) (Ministral 3); beta 0: none.
struct PositionScale {
    double beta = 0;
    int64_t length = 0;
    friend bool operator==(const PositionScale&, const PositionScale&) = default;
};

// What single models of the family have, and ways of writing that only some exporters use. Each
// names the forms of models/onnx_writer.h that can write it. `build_llama_graph` has none of them.
struct Variation {
    Rotation rotation = Rotation::kHalves;  // kDecomposed
    double score_softcap = 0;               // all: cap * tanh(scores / cap)
    double logits_softcap = 0;              // all
    double logits_divisor = 1;              // all
    double embedding_factor = 1;            // all
    double residual_factor = 1;             // all
    double attention_scale = 0;             // all; 0: 1 / sqrt(head_dim)
    double norm_offset = 0;                 // all: y = x / rms(x) * (offset + weight)
    bool norms_before = true;               // all: RMSNorm in front of attention and MLP
    bool norms_behind = false;              // all: behind them, before the residual is added
    bool qk_norm = false;                   // in kGroupQueryAttention: its inputs, or apart
    bool joint_qk_norm = false;             // all: over all heads (OLMo-2)
    bool gated = true;                      // all: the MLP has gate_proj
    bool fused_projections = false;         // all: qkv_proj, and gate_up_proj
    int64_t rotary_dim = 0;                 // all: features that turn; 0: head_dim
    PositionScale position_scale;           // all
    importer::Activation activation = importer::Activation::kSilu;  // all
    int64_t frequencies_change_at = 0;  // kDecomposed: halved for longer sequences; 0: never
    bool cut_tables = false;            // kDecomposed: rows of table[:tokens so far]
    bool square_mask = false;           // kAttention: fits without a past, or one token after it
    bool static_cache = false;          // kAttention: TensorScatter, nonpad_kv_seqlen, opset 24
    bool ring_cache = false;            // kGroupQueryAttention: sliding_window_cache
    bool keys_first = false;            // all: every layer's keys before the values
    bool head = true;                   // all: else the last norm is the output
    int64_t batch = 0;                  // all: fixed; 0: free
    friend bool operator==(const Variation&, const Variation&) = default;
};

// Inverse frequencies of a rotary embedding, [rotary_dim / 2].
struct Frequencies {
    std::vector<float> values;
    double magnitude = 1;      // of cos and sin
    int64_t change_at = 0;     // sequences that are longer have others; 0: never
    std::vector<float> later;  // then these
    double ntk_factor = 0;     // or, above 0, those of the base that grows with the length
};

// How the matrices of a folder are quantised.
struct PackedWeights {
    enum class Form : uint8_t {
        kWhole,              // they are not
        kCompressedTensors,  // codes around 2^(bits - 1), and a scale for each `group` of inputs
        kGptq,               // words of consecutive inputs, zero points
        kAwq,                // words of eight outputs, zero points
        kFloat8,             // f8e4m3, a scale for all, a row, or `rows` x `group` elements
    } form = Form::kWhole;
    int bits = 4;
    bool has_zero_points = false;         // kCompressedTensors; GPTQ and AWQ always have them
    int64_t group = 0;                    // 0: a whole row
    int64_t rows = 1;                     // kFloat8: that share a scale
    int zero_offset = 0;                  // kGptq: Quantization::zero_offset
    std::vector<std::string> left_whole;  // kCompressedTensors: modules, "lm_head"
    // Whether ONNX has words for such matrices (com.microsoft.MatMulNBits), and for this one.
    bool has_onnx_words() const {
        return form == Form::kCompressedTensors && group > 0 && !has_zero_points;
    }
    bool in_onnx(const std::string& module) const {
        for (const std::string& name : left_whole)
            if (name == module) return false;
        return has_onnx_words();
    }
};

struct LayerKind {
    int64_t window = 0;  // 0: none
    int rope = 0;        // of Shape::rope; -1: q and k are not rotated
};

struct Shape {
    std::string name;
    importer::ModelConfig config;
    bool qkv_bias = false;
    bool o_bias = false;
    bool mlp_bias = false;
    int64_t sliding_window = 0;      // 0: none
    double rope_scaling_factor = 0;  // llama3 scaling when > 0
    double rope_low_freq_factor = 1;
    double rope_high_freq_factor = 4;
    int64_t rope_original_positions = 8192;
    std::vector<Frequencies> rope;  // empty: rope_frequencies of this shape (llama_graph.h)
    std::vector<LayerKind> layers;  // empty: all have `sliding_window` and the first of `rope`
    Variation variation;
    PackedWeights packed;        // of a Hugging Face folder
    DType dtype = DType::kBF16;  // default weights

    // A Llama as build_llama_graph has it.
    bool is_plain() const {
        return rope.empty() && layers.empty() && variation == Variation{} &&
               packed.form == PackedWeights::Form::kWhole;
    }
    LayerKind layer(int index) const {
        return layers.empty() ? LayerKind{sliding_window} : layers.at(static_cast<size_t>(index));
    }
};

std::vector<std::string> shape_names();
std::optional<Shape> find_shape(const std::string& name);

// Reads a config.json of a Llama-like model. UserError naming file and field for what it lacks or
// does not know.
Shape shape_from_config(const std::string& path);
// Of its text, as messages name it.
Shape shape_from_json(const nlohmann::json& json, const std::string& path);

}  // namespace cleave::models
