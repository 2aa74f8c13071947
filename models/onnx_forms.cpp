// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numbers>

#include "models/onnx_form.h"
#include "runtime/base/errors.h"

namespace cleave::models {

using onnx::TensorProto;

std::string Form::decomposed_norm(const std::string& x, const std::string& weight) {
    std::string wide = b_.is_f32() ? x : b_.cast(x, TensorProto::FLOAT);
    std::string square = b_.node("Pow", {wide, b_.floats({2.0f}, {})});
    const Attribute keep{"keepdims", int64_t{1}};  // the axes became an input in opset 18
    std::string mean =
        is(OnnxForm::kAttention)
            ? b_.node("ReduceMean", {square, b_.ints({-1})}, {keep})
            : b_.node("ReduceMean", {square}, {{"axes", std::vector<int64_t>{-1}}, keep});
    std::string root = b_.node(
        "Sqrt",
        {b_.node("Add", {mean, b_.floats({static_cast<float>(config_.rms_norm_eps)}, {})})});
    std::string y = b_.node("Mul", {wide, b_.node("Div", {b_.floats({1.0f}, {}), root})});
    if (variation().norm_offset != 0) {  // in f32, as Gemma does
        std::string shifted = b_.is_f32() ? weight : b_.cast(weight, TensorProto::FLOAT);
        shifted =
            b_.node("Add", {shifted, b_.floats({static_cast<float>(variation().norm_offset)}, {})});
        y = b_.node("Mul", {y, shifted});
        return b_.is_f32() ? y : b_.cast(y, b_.dtype());
    }
    if (!b_.is_f32()) y = b_.cast(y, b_.dtype());
    return b_.node("Mul", {weight, y});
}

std::string Form::norm(const std::string& x, const std::string& name) {
    std::string weight = b_.weight(name + ".weight", {config_.hidden_size}, 0);
    const double epsilon = config_.rms_norm_eps;
    if (variation().norm_offset != 0) return decomposed_norm(x, weight);
    switch (options_.form) {
        case OnnxForm::kDecomposed: return decomposed_norm(x, weight);
        case OnnxForm::kFunctions:
            return b_.node(std::string(kFunctionDomain) + ".RmsNorm", {x, weight},
                           {{"epsilon", epsilon}});
        case OnnxForm::kAttention:
            return b_.node("RMSNormalization", {x, weight},
                           {{"axis", int64_t{-1}}, {"epsilon", epsilon}});
        case OnnxForm::kGroupQueryAttention:
            return b_.node(
                "SimplifiedLayerNormalization", {x, weight},
                {{"axis", int64_t{-1}}, {"epsilon", epsilon}, {"stash_type", int64_t{1}}});
    }
    return {};
}

std::string Form::linear(const std::string& x, const std::string& name, int64_t in, int64_t out,
                         bool bias) {
    std::string y;
    if (options_.as_hugging_face && shape_.packed.in_onnx(name)) {
        y = packed_product(x, name, in, out);
    } else if (options_.as_hugging_face) {
        std::string weight = b_.node("Transpose", {b_.weight(name + ".weight", {out, in}, in)},
                                     {{"perm", std::vector<int64_t>{1, 0}}});
        y = b_.node("MatMul", {x, weight});
    } else {
        y = b_.node("MatMul", {x, b_.weight(name + ".weight", {in, out}, in)});
    }
    return bias ? b_.node("Add", {b_.weight(name + ".bias", {out}, in), y}) : y;
}

// Eight codes of 4 bits in an int32, the first lowest, are the bytes that MatMulNBits takes.
std::string Form::packed_product(const std::string& x, const std::string& name, int64_t in,
                                 int64_t out) {
    const int bits = shape_.packed.bits;
    const int64_t group = shape_.packed.group;
    if (in % group != 0)
        throw UserError(
            "{}: its {} input features are no multiple of the group of {} that they "
            "are quantised in, which is not supported",
            name, in, group);
    const std::string codes = b_.packed_weight(
        name + ".weight_packed", {out, in / group, group * bits / 8}, {out, in * bits / 32});
    const std::string scales = b_.weight(name + ".weight_scale", {out, in / group}, in);
    return b_.node("com.microsoft.MatMulNBits", {x, codes, scales},
                   {{"K", in}, {"N", out}, {"bits", int64_t{bits}}, {"block_size", group}});
}

std::string Form::activated(const std::string& x) {
    using importer::Activation;
    switch (variation().activation) {
        case Activation::kSilu: return b_.node("Mul", {x, b_.node("Sigmoid", {x})});
        case Activation::kRelu: return b_.node("Relu", {x});
        case Activation::kRelu2: {
            const std::string y = b_.node("Relu", {x});
            return b_.node("Mul", {y, y});
        }
        case Activation::kGeluErf: {
            std::string y = b_.node("Erf", {b_.node("Mul", {x, b_.scalar(std::sqrt(0.5))})});
            y = b_.node("Add", {y, b_.scalar(1.0)});
            return b_.node("Mul", {b_.node("Mul", {x, b_.scalar(0.5)}), y});
        }
        case Activation::kGeluTanh: break;
    }
    std::string inner = b_.node("Mul", {b_.node("Mul", {x, x}), x});
    inner = b_.node("Add", {x, b_.node("Mul", {inner, b_.scalar(0.044715)})});
    inner =
        b_.node("Tanh", {b_.node("Mul", {inner, b_.scalar(std::sqrt(2.0 / std::numbers::pi))})});
    inner = b_.node("Add", {inner, b_.scalar(1.0)});
    return b_.node("Mul", {b_.node("Mul", {x, b_.scalar(0.5)}), inner});
}

std::string Form::mlp(const std::string& normed, int layer) {
    const std::string p = prefix(layer) + "mlp.";
    const int64_t hidden = config_.hidden_size, wide = config_.intermediate_size;
    std::string gate, up;
    if (!variation().gated) {
        up = linear(normed, p + "up_proj", hidden, wide, shape_.mlp_bias);
        return linear(activated(up), p + "down_proj", wide, hidden, shape_.mlp_bias);
    }
    if (variation().fused_projections) {
        const std::string both =
            linear(normed, p + "gate_up_proj", hidden, 2 * wide, shape_.mlp_bias);
        gate = both + "/gate", up = both + "/up";
        b_.node_to("Split", {both, b_.ints({wide, wide})}, {gate, up}, {{"axis", int64_t{-1}}});
    } else {
        gate = linear(normed, p + "gate_proj", hidden, wide, shape_.mlp_bias);
        up = linear(normed, p + "up_proj", hidden, wide, shape_.mlp_bias);
    }
    return linear(b_.node("Mul", {activated(gate), up}), p + "down_proj", wide, hidden,
                  shape_.mlp_bias);
}

std::string Form::head_norm(const std::string& x, const std::string& name) {
    return decomposed_norm(x, b_.weight(name + ".weight", {config_.head_dim}, 0));
}

// What some models do to a block's result before it is added.
std::string Form::finished_branch(std::string y, const std::string& norm_name) {
    if (variation().norms_behind) y = norm(y, norm_name);
    if (variation().residual_factor != 1)
        y = b_.node("Mul", {y, b_.scalar(variation().residual_factor)});
    return y;
}

std::string Form::finished_logits(std::string logits) {
    if (variation().logits_divisor != 1)
        logits = b_.node("Div", {logits, b_.scalar(variation().logits_divisor)});
    if (variation().logits_softcap == 0) return logits;
    logits = b_.node("Tanh", {b_.node("Div", {logits, b_.scalar(variation().logits_softcap)})});
    return b_.node("Mul", {logits, b_.scalar(variation().logits_softcap)});
}

bool Form::has_plain_norms() const {
    return variation().norms_before && !variation().norms_behind && variation().norm_offset == 0 &&
           variation().residual_factor == 1;
}

// The norms are called as transformers does: what is behind attention in models with norms behind
// has the name of what is in front of the MLP in others.
std::string Form::layers(std::string x) {
    for (int layer = 0; layer < config_.num_layers; ++layer) {
        b_.scope(fmt::format("/model/layers.{}/", layer));
        const std::string p = prefix(layer);
        std::string y = variation().norms_before ? norm(x, fmt::format("{}input_layernorm", p)) : x;
        y = self_attention(y, layer);
        x = b_.node("Add", {x, finished_branch(y, fmt::format("{}post_attention_layernorm", p))});
        y = x;
        if (variation().norms_before)
            y = norm(x, fmt::format("{}{}", p,
                                    variation().norms_behind ? "pre_feedforward_layernorm"
                                                             : "post_attention_layernorm"));
        x = b_.node("Add", {x, finished_branch(mlp(y, layer),
                                               fmt::format("{}post_feedforward_layernorm", p))});
    }
    b_.scope("/model/");
    return norm(x, "model.norm");
}

// The contrib form folds each residual Add into the norm after it; its fourth output is the sum.
std::string Form::skip_norm_layers(std::string x) {
    auto skip = [&](const std::string& skipped, const std::string& y, const std::string& name,
                    std::string* sum) {
        std::string normed = fmt::format("{}/output_0", name);
        *sum = fmt::format("{}/output_3", name);
        b_.node_to("com.microsoft.SkipSimplifiedLayerNormalization",
                   {skipped, y, b_.weight(name + ".weight", {config_.hidden_size}, 0)},
                   {normed, "", "", *sum}, {{"epsilon", config_.rms_norm_eps}});
        return normed;
    };
    std::string normed = norm(x, prefix(0) + "input_layernorm");
    for (int layer = 0; layer < config_.num_layers; ++layer) {
        b_.scope(fmt::format("/model/layers.{}/", layer));
        std::string sum;
        normed = skip(x, self_attention(normed, layer), prefix(layer) + "post_attention_layernorm",
                      &sum);
        bool last = layer + 1 == config_.num_layers;
        normed = skip(sum, mlp(normed, layer),
                      last ? "model.norm" : prefix(layer + 1) + "input_layernorm", &x);
    }
    return normed;
}

void Form::build() {
    const bool contrib = is(OnnxForm::kGroupQueryAttention);
    if (contrib && !options_.with_past)
        throw UserError(
            "a GroupQueryAttention graph has a past: set with_past, or choose another form");
    b_.opset("", variation().static_cache   ? 24
                 : is(OnnxForm::kAttention) ? 23
                 : is(OnnxForm::kFunctions) ? 18
                                            : 17);
    model_.set_ir_version(is(OnnxForm::kAttention) ? 11 : is(OnnxForm::kFunctions) ? 9 : 8);
    if (contrib || shape_.packed.form == PackedWeights::Form::kCompressedTensors)
        b_.opset("com.microsoft", 1);
    if (is(OnnxForm::kFunctions)) add_functions(model_, b_);
    declare_inputs();
    if (!contrib) positions_and_lengths();
    if (needs_mask())
        for (int layer = 0; layer < config_.num_layers; ++layer)
            if (const int64_t window = shape_.layer(layer).window; !masks_.contains(window))
                mask(window);
    rope_tables();
    if (variation().position_scale.beta != 0) scale_by_position();
    if (contrib) {
        b_.scope("/model/attn_mask/");
        std::string sum =
            b_.node("ReduceSum", {"attention_mask", b_.ints({1})}, {{"keepdims", int64_t{0}}});
        seqlens_k_ = b_.cast(b_.node("Sub", {sum, b_.ints({1})}), TensorProto::INT32);
        total_i32_ =
            b_.cast(b_.node("Gather", {b_.node("Shape", {"attention_mask"}), b_.int_scalar(1)},
                            {{"axis", int64_t{0}}}),
                    TensorProto::INT32);
    }
    b_.scope("/model/");
    const std::string table =
        b_.weight("model.embed_tokens.weight", {config_.vocab_size, config_.hidden_size},
                  config_.hidden_size);
    std::string x = b_.node("Gather", {table, "input_ids"}, {{"axis", int64_t{0}}});
    if (variation().embedding_factor != 1)
        x = b_.node("Mul", {x, b_.scalar(variation().embedding_factor)});
    x = contrib && has_plain_norms() ? skip_norm_layers(x) : layers(x);
    b_.scope("/lm_head/");
    std::string logits;
    if (!variation().head) {
        logits = x;
    } else if (config_.tied_embeddings) {
        logits = b_.node(
            "MatMul", {x, b_.node("Transpose", {table}, {{"perm", std::vector<int64_t>{1, 0}}})});
    } else {
        logits = linear(x, "lm_head", config_.hidden_size, config_.vocab_size, false);
    }
    if (variation().head) logits = finished_logits(logits);
    if (b_.is_f32())
        b_.node_to("Identity", {logits}, {"logits"});
    else
        b_.node_to("Cast", {logits}, {"logits"}, {{"to", int64_t{TensorProto::FLOAT}}});
}

void build_onnx_graph(const Shape& shape, const WriteOptions& options, onnx::ModelProto& model,
                      OnnxBuilder& builder) {
    Form(shape, options, model, builder).build();
}

}  // namespace cleave::models
