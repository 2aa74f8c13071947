// SPDX-License-Identifier: Apache-2.0
#include "tests/planner/support/hand_plan.h"

namespace cleave::test {

using namespace importer;

namespace {

class Builder {
public:
    explicit Builder(const TinyShape& shape) : s_(shape) {}
    Graph run();

private:
    ValueId value(const std::string& name, int64_t width, ValueKind kind = ValueKind::kActivation,
                  const char* rows = "num_tokens") {
        g_.values.push_back({name, kind, {Dim(std::string(rows)), Dim(width)}, DType::kF32});
        return ValueId(g_.values.size() - 1);
    }
    WeightId weight(const std::string& name, std::vector<int64_t> shape) {
        Weight w{.name = name, .shape = shape, .source_shape = shape, .initializers = {name}};
        w.rows = {0, shape[0]};
        w.columns = {0, shape.size() > 1 ? shape[1] : 0};
        w.data = {FileId(0), BlobId(), offset_, static_cast<uint64_t>(w.num_elements() * 4)};
        offset_ += w.data.length;
        g_.weights.push_back(std::move(w));
        return WeightId(g_.weights.size() - 1);
    }
    ValueId op(OpKind kind, const std::string& name, OpAttrs attrs, std::vector<ValueId> inputs,
               ValueId output, std::vector<WeightId> weights = {}) {
        g_.ops.push_back({kind,
                          name,
                          layer_,
                          std::move(attrs),
                          std::move(inputs),
                          {output},
                          std::move(weights),
                          {"/" + name}});
        return output;
    }
    ValueId linear(const std::string& name, ValueId x, int64_t in, int64_t out, bool bias = false) {
        std::vector<WeightId> weights{weight(name + ".weight", {out, in})};
        if (bias) weights.push_back(weight(name + ".bias", {out}));
        return op(OpKind::kLinear, name, LinearAttrs{bias}, {x}, value(name, out), weights);
    }
    ValueId norm(const std::string& name, ValueId x, const char* rows = "num_tokens") {
        return op(OpKind::kRmsNorm, name, RmsNormAttrs{1e-5, 0.0, s_.hidden}, {x},
                  value(name, s_.hidden, ValueKind::kActivation, rows),
                  {weight(name + ".weight", {s_.hidden})});
    }
    ValueId layer(ValueId x);

    TinyShape s_;
    Graph g_;
    int layer_ = -1;
    uint64_t offset_ = 0;
};

ValueId Builder::layer(ValueId x) {
    const std::string p = "layers." + std::to_string(layer_) + ".";
    const int64_t d = s_.head_dim;
    ValueId normed = norm(p + "input_norm", x);
    ValueId q = linear(p + "q_proj", normed, s_.hidden, s_.heads * d);
    ValueId k = linear(p + "k_proj", normed, s_.hidden, s_.kv_heads * d);
    ValueId v = linear(p + "v_proj", normed, s_.hidden, s_.kv_heads * d);
    ValueId qr = op(OpKind::kRope, p + "q_rope", RopeAttrs{s_.heads, d, d, false, RopeTableId(0)},
                    {q}, value(p + "q_rope", s_.heads * d));
    ValueId kr =
        op(OpKind::kRope, p + "k_rope", RopeAttrs{s_.kv_heads, d, d, false, RopeTableId(0)}, {k},
           value(p + "k_rope", s_.kv_heads * d));
    g_.values.push_back({p + "kv",
                         ValueKind::kKvState,
                         {Dim(std::string("num_slots")), Dim(std::string("context")), Dim(2),
                          Dim(s_.kv_heads), Dim(d)},
                         DType::kF32});
    ValueId state(g_.values.size() - 1);
    op(OpKind::kKvAppend, p + "kv_append", KvAppendAttrs{s_.kv_heads, d, d}, {kr, v}, state);
    ValueId a =
        op(OpKind::kAttention, p + "attention", AttentionAttrs{s_.heads, s_.kv_heads, d, d, 0.5},
           {qr, state}, value(p + "attention", s_.heads * d));
    ValueId o = linear(p + "o_proj", a, s_.heads * d, s_.hidden, s_.o_bias);
    x = op(OpKind::kAdd, p + "attention_residual", AddAttrs{}, {x, o},
           value(p + "attention_residual", s_.hidden));
    normed = norm(p + "post_norm", x);
    ValueId gate = linear(p + "gate_proj", normed, s_.hidden, s_.intermediate);
    ValueId up = linear(p + "up_proj", normed, s_.hidden, s_.intermediate);
    ValueId m = op(OpKind::kGatedActivation, p + "gated_activation", GatedActivationAttrs{},
                   {gate, up}, value(p + "gated_activation", s_.intermediate));
    ValueId down = linear(p + "down_proj", m, s_.intermediate, s_.hidden);
    return op(OpKind::kAdd, p + "mlp_residual", AddAttrs{}, {x, down},
              value(p + "mlp_residual", s_.hidden));
}

Graph Builder::run() {
    g_.name = "tiny";
    g_.path = "tiny/model.onnx";
    g_.exporter = "by hand";
    g_.opset = 17;
    g_.config = {.vocab_size = s_.vocab,
                 .hidden_size = s_.hidden,
                 .intermediate_size = s_.intermediate,
                 .num_layers = s_.layers,
                 .num_heads = s_.heads,
                 .num_kv_heads = s_.kv_heads,
                 .head_dim = s_.head_dim,
                 .max_positions = 64,
                 .rope_theta = 10000.0};
    g_.values.push_back(
        {"token_ids", ValueKind::kTokenIds, {Dim(std::string("num_tokens"))}, DType::kInt64});
    g_.inputs = {ValueId(0)};
    RopeTable table{.rotary_dim = s_.head_dim, .name = "rope"};
    for (int64_t i = 0; i < s_.head_dim / 2; ++i)
        table.frequencies.push_back(1.0f / static_cast<float>(1 + 99 * i));
    g_.rope_tables.push_back(table);
    ValueId x =
        op(OpKind::kEmbedding, "embedding", EmbeddingAttrs{}, {ValueId(0)},
           value("embedding", s_.hidden), {weight("embedding.weight", {s_.vocab, s_.hidden})});
    for (layer_ = 0; layer_ < s_.layers; ++layer_) x = layer(x);
    x = op(OpKind::kSelectTokens, "select_tokens", SelectTokensAttrs{}, {x},
           value("select_tokens", s_.hidden, ValueKind::kActivation, "num_outputs"));
    x = norm("final_norm", x, "num_outputs");
    x = op(OpKind::kLinear, "lm_head", LinearAttrs{}, {x},
           value("logits", s_.vocab, ValueKind::kLogits, "num_outputs"),
           {weight("lm_head.weight", {s_.vocab, s_.hidden})});
    g_.outputs = {x};
    g_.files.push_back({"tiny/model.onnx.data", offset_, true});
    g_.notes = {"made by hand"};
    return std::move(g_);
}

}  // namespace

Graph tiny_graph(const TinyShape& shape) { return Builder(shape).run(); }

}  // namespace cleave::test
