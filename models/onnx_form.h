// SPDX-License-Identifier: Apache-2.0
// One ONNX graph of a decoder being written, in one exporter's form: what build_onnx_graph
// (onnx_forms.h) is made of. onnx_positions.cpp has inputs, masks and rotary tables,
// onnx_attention.cpp what becomes of q, k and v, onnx_forms.cpp the rest. Members return the names
// of the values that they made.
#pragma once

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "models/onnx_forms.h"

namespace cleave::models {

class Form {
public:
    Form(const Shape& shape, const WriteOptions& options, onnx::ModelProto& model,
         OnnxBuilder& builder)
        : shape_(shape), config_(shape.config), options_(options), model_(model), b_(builder) {}

    void build();

private:
    bool is(OnnxForm form) const { return options_.form == form; }
    const Variation& variation() const { return shape_.variation; }
    bool needs_mask() const {
        return !is(OnnxForm::kGroupQueryAttention) && !variation().static_cache;
    }
    bool neighbours() const { return variation().rotation >= Rotation::kNeighboursSliced; }

    void declare_inputs();
    void positions_and_lengths();
    void mask(int64_t window);
    // cos and sin of one rotary embedding.
    using Tables = std::pair<std::string, std::string>;
    Tables stored_tables(const std::vector<float>& frequencies, int copies);
    Tables cut_tables(const std::vector<float>& frequencies);
    std::string chosen(const Frequencies& rope, const std::vector<int64_t>& shape);
    Tables turned(const Frequencies& rope, const std::string& angles);
    Tables computed_tables(const Frequencies& rope);
    Tables cache_tables(const Frequencies& rope);
    void rope_tables();
    void scale_by_position();
    int64_t rotary_dim() const {
        return variation().rotary_dim > 0 ? variation().rotary_dim : config_.head_dim;
    }
    double attention_scale() const;
    std::string norm(const std::string& x, const std::string& weight_name);
    bool has_plain_norms() const;
    std::string decomposed_norm(const std::string& x, const std::string& weight);
    std::string linear(const std::string& x, const std::string& name, int64_t in, int64_t out,
                       bool bias);
    std::string packed_product(const std::string& x, const std::string& name, int64_t in,
                               int64_t out);
    std::string heads(const std::string& x, int64_t num_heads);
    std::string rope(const std::string& x, int layer);
    std::string rotated(const std::string& x, const Tables& table);
    std::string rotated_in_pieces(const std::string& x, const Tables& table);
    std::string rotated_apart(const std::string& x, const Tables& table);
    std::string head_norm(const std::string& x, const std::string& weight_name);
    std::string finished_branch(std::string y, const std::string& norm_name);
    std::string finished_logits(std::string logits);
    std::vector<std::pair<int, const char*>> cache_order() const;
    std::string repeat_kv(const std::string& x);
    std::string decomposed_attention(const std::string& q, const std::string& k,
                                     const std::string& v, int layer);
    std::array<std::string, 3> projections(const std::string& normed, int layer);
    std::string self_attention(const std::string& normed, int layer);
    std::string group_query_attention(const std::string& q, const std::string& k,
                                      const std::string& v, int layer);
    std::string activated(const std::string& x);
    std::string mlp(const std::string& normed, int layer);
    std::string layers(std::string x);
    std::string skip_norm_layers(std::string x);
    std::string past(int layer, const char* what) const {
        return fmt::format("past_key_values.{}.{}", layer, what);
    }
    std::string present(int layer, const char* what) const {
        return fmt::format("present.{}.{}", layer, what);
    }
    std::string prefix(int layer) const { return fmt::format("model.layers.{}.", layer); }

    const Shape& shape_;
    const importer::ModelConfig& config_;
    const WriteOptions& options_;
    onnx::ModelProto& model_;
    OnnxBuilder& b_;
    std::string sequence_length_, past_length_, total_length_;  // int64 scalars
    std::string position_ids_;                                  // [batch, sequence]
    std::map<int64_t, std::string>
        masks_;  // by window; bool or additive, [batch, 1, sequence, total]
    std::vector<Tables>
        tables_;  // of Shape::rope; by form: [batch, 1, sequence, n] or whole tables
    std::string position_scale_;         // [batch, sequence, 1], of queries; empty: none
    std::string seqlens_k_, total_i32_;  // for GroupQueryAttention
};

}  // namespace cleave::models
