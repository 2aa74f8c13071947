// SPDX-License-Identifier: Apache-2.0
#include "codegen/lower/lower_step.h"

#include "codegen/lower/epilogue.h"
#include "codegen/lower/tensor/tensor_kernels.h"
#include "runtime/base/errors.h"

namespace cleave::codegen {

namespace {

using importer::Op;
using importer::OpKind;
using planner::KernelKind;

Arg count_arg(RowCount count, const char* name = "num_tokens") {
    return batch_arg(count == RowCount::kTokens ? BatchField::kNumTokens : BatchField::kNumOutputs,
                     name);
}

std::optional<DType> dtype_of(const planner::WeightShard* shard) {
    return shard ? std::optional(shard->dtype) : std::nullopt;
}

Lowered lower_embedding(const StepReader& s) {
    const Op& op = s.only(OpKind::kEmbedding);
    const planner::WeightShard& table = s.weight(op, 0);
    EmbeddingSpec spec;
    spec.hidden = table.columns.size();
    spec.rows = table.rows.size();
    spec.weight = s.format(table);
    spec.scale = op.as<importer::EmbeddingAttrs>().scale;
    return {spec,
            {batch_arg(BatchField::kTokenIds, "ids"), immediate_arg(table.rows.begin, "first"),
             s.weight_arg(op, 0, "table"), s.output_arg("out")}};
}

// Linear, with or without norm and selection in front, and elementwise operators behind it.
Lowered lower_linear(const StepReader& s) {
    size_t next = s.find_first(OpKind::kLinear);
    const Op& linear = s.op(next++);
    const planner::WeightShard& weight = s.weight(linear, 0);
    const Op* norm = s.find(OpKind::kRmsNorm);
    const Op* select = s.find(OpKind::kSelectTokens);
    const Op& first = select ? *select : norm ? *norm : linear;

    LinearSpec spec;
    std::vector<Arg> args = {s.input_arg(first.inputs[0], "x")};
    spec.in = weight.columns.size();
    spec.out = weight.rows.size();
    spec.weight = s.format(weight);
    spec.count = s.rows_of(s.last());
    spec.logits = s.makes_logits(s.last());
    spec.x = s.view(first.inputs[0], weight.columns.begin);
    if (norm) {
        spec.norm = s.norm(*norm);
        args.push_back(s.weight_arg(*norm, 0, "norm"));
    }
    args.push_back(s.weight_arg(linear, 0, "weight"));
    if (const planner::WeightShard* bias = s.bias(linear)) {
        spec.bias = bias->dtype;
        args.push_back(s.weight_arg(linear, 1, "bias"));
    }
    importer::ValueId product = linear.outputs[0];
    if (next < s.num_ops() && s.op(next).kind == OpKind::kScale) {
        const auto& scale = s.op(next).as<importer::ScaleAttrs>();
        spec.scale = scale.factor;
        spec.softcap = scale.softcap;
        product = s.op(next++).outputs[0];
    }
    if (next < s.num_ops() && s.op(next).kind == OpKind::kAdd) {
        const Op& sum = s.op(next);
        importer::ValueId residual = sum.inputs[sum.inputs[0] == product ? 1 : 0];
        if (residual != product) {
            spec.residual = s.view(residual, weight.rows.begin);
            args.push_back(s.input_arg(residual, "residual"));
            product = s.op(next++).outputs[0];
        }
    }
    if (select) {
        spec.select = true;
        args.push_back(batch_arg(BatchField::kOutputRows, "rows"));
    }
    args.push_back(s.output_arg("out"));
    args.push_back(count_arg(spec.count));
    // All rows of x decide how its elements become integers, also where few are selected.
    if (spec.weight.dynamic())
        args.push_back(count_arg(select ? RowCount::kTokens : s.rows_of(first), "all_tokens"));
    spec.epilogue = read_epilogue(s, next, product, args);
    return {spec, args};
}

Lowered lower_gate_up(const StepReader& s) {
    const size_t at = s.find_first(OpKind::kGatedActivation);
    const Op& gated = s.op(at);
    const Op& gate = s.producer(gated.inputs[0]);
    const Op& up = s.producer(gated.inputs[1]);
    const Op* norm = s.find(OpKind::kRmsNorm);
    const Op& first = norm ? *norm : gate;
    const planner::WeightShard& gate_weight = s.weight(gate, 0);

    GateUpSpec spec;
    spec.in = gate_weight.columns.size();
    spec.out = gate_weight.rows.size();
    spec.gate = s.format(gate_weight);
    spec.up = s.format(s.weight(up, 0));
    spec.gate_bias = dtype_of(s.bias(gate));
    spec.up_bias = dtype_of(s.bias(up));
    spec.activation = gated.as<importer::GatedActivationAttrs>().activation;
    spec.x = s.view(first.inputs[0], gate_weight.columns.begin);
    std::vector<Arg> args = {s.input_arg(first.inputs[0], "x")};
    if (norm) {
        spec.norm = s.norm(*norm);
        args.push_back(s.weight_arg(*norm, 0, "norm"));
    }
    args.push_back(s.weight_arg(gate, 0, "gate"));
    if (spec.gate_bias) args.push_back(s.weight_arg(gate, 1, "gate_bias"));
    args.push_back(s.weight_arg(up, 0, "up"));
    if (spec.up_bias) args.push_back(s.weight_arg(up, 1, "up_bias"));
    args.push_back(s.output_arg("out"));
    args.push_back(count_arg(RowCount::kTokens));
    spec.epilogue = read_epilogue(s, at + 1, gated.outputs[0], args);
    return {spec, args};
}

// Linear [, RmsNorm] [, Rope] that ends in a value, found from its end.
struct Projection {
    const Op* linear = nullptr;
    const Op* norm = nullptr;
    const Op* rope = nullptr;
};

Projection trace(const StepReader& s, importer::ValueId value) {
    Projection p;
    const Op* op = &s.producer(value);
    if (op->kind == OpKind::kRope) {
        p.rope = op;
        op = &s.producer(op->inputs[0]);
    }
    if (op->kind == OpKind::kRmsNorm) {
        p.norm = op;
        op = &s.producer(op->inputs[0]);
    }
    CLEAVE_CHECK(op->kind == OpKind::kLinear) << op->name << " is no projection";
    p.linear = op;
    return p;
}

std::optional<NormSpec> head_norm(const StepReader& s, const Projection& p, int64_t head_dim) {
    if (!p.norm) return std::nullopt;
    int64_t group = p.norm->as<importer::RmsNormAttrs>().group;
    CLEAVE_CHECK(group == head_dim)
        << p.norm->name << " normalises " << group << " features, not a head of " << head_dim;
    return s.norm(*p.norm);
}

std::optional<RopeSpec> rope_spec(const Op* rope) {
    if (!rope) return std::nullopt;
    const auto& attrs = rope->as<importer::RopeAttrs>();
    return RopeSpec{attrs.rotary_dim, attrs.interleaved};
}

Lowered lower_qkv(const StepReader& s) {
    const Op& append = s.only(OpKind::kKvAppend);
    const planner::PlacedValue& q_out = s.placed(s.compute().outputs.at(0));
    Projection q = trace(s, q_out.value), k = trace(s, append.inputs[0]),
               v = trace(s, append.inputs[1]);
    const planner::WeightShard& wq = s.weight(*q.linear, 0);
    const planner::WeightShard& wk = s.weight(*k.linear, 0);
    const planner::WeightShard& wv = s.weight(*v.linear, 0);

    QkvSpec spec;
    spec.slab = s.slab();
    const int64_t dim = spec.slab.head_dim;
    CLEAVE_CHECK(wq.rows.size() % dim == 0 && wk.rows.size() % dim == 0)
        << append.name << ": shards are not whole heads";
    spec.in = wq.columns.size();
    spec.q_heads = wq.rows.size() / dim;
    spec.kv_heads = {wk.rows.begin / dim, wk.rows.end / dim};
    CLEAVE_CHECK(wv.rows.begin == spec.kv_heads.begin * spec.slab.v_head_dim &&
                 wv.rows.end == spec.kv_heads.end * spec.slab.v_head_dim)
        << append.name << ": k and v shards hold different heads";
    spec.q = s.format(wq);
    spec.k = s.format(wk);
    spec.v = s.format(wv);
    spec.q_bias = dtype_of(s.bias(*q.linear));
    spec.k_bias = dtype_of(s.bias(*k.linear));
    spec.v_bias = dtype_of(s.bias(*v.linear));
    const Op* norm = s.find_producer(q.linear->inputs[0]);
    importer::ValueId x = norm ? norm->inputs[0] : q.linear->inputs[0];
    if (norm) spec.norm = s.norm(*norm);
    spec.q_norm = head_norm(s, q, dim);
    spec.k_norm = head_norm(s, k, dim);
    spec.q_rope = rope_spec(q.rope);
    spec.k_rope = rope_spec(k.rope);
    spec.x = s.view(x, wq.columns.begin);

    std::vector<Arg> args = {s.input_arg(x, "x")};
    if (norm) args.push_back(s.weight_arg(*norm, 0, "norm"));
    auto add = [&](const Projection& p, const std::string& name) {
        args.push_back(s.weight_arg(*p.linear, 0, name + "_weight"));
        if (s.bias(*p.linear)) args.push_back(s.weight_arg(*p.linear, 1, name + "_bias"));
    };
    add(q, "q");
    add(k, "k");
    add(v, "v");
    if (q.norm) args.push_back(s.weight_arg(*q.norm, 0, "q_norm"));
    if (k.norm) args.push_back(s.weight_arg(*k.norm, 0, "k_norm"));
    if (q.rope) args.push_back(s.rope_arg(*q.rope, "q_rope"));
    if (k.rope) args.push_back(s.rope_arg(*k.rope, "k_rope"));
    args.push_back(s.output_arg(q_out.value, "q_out"));
    s.add_kv_args(args);
    args.push_back(immediate_arg(s.context(), "rope_context"));
    args.push_back(batch_arg(BatchField::kPositions, "positions"));
    args.push_back(batch_arg(BatchField::kSlots, "slots"));
    args.push_back(count_arg(RowCount::kTokens));
    return {spec, args};
}

Lowered lower_attention(const StepReader& s) {
    const Op& op = s.only(OpKind::kAttention);
    const auto& attrs = op.as<importer::AttentionAttrs>();
    if (!attrs.causal)
        throw UserError(
            "{} (layer {}) is attention without a causal mask: kernels compute causal "
            "attention only",
            op.name, op.layer);
    AttentionSpec spec;
    spec.slab = s.slab();
    spec.heads = s.compute().heads;
    spec.group = attrs.num_heads / attrs.num_kv_heads;
    spec.scale = attrs.scale;
    spec.window = attrs.window;
    spec.softcap = attrs.softcap;
    spec.prefill = s.is_prefill();
    spec.q = s.view(op.inputs[0], spec.heads.begin * spec.slab.head_dim);
    std::vector<Arg> args = {s.input_arg(op.inputs[0], "q")};
    s.add_kv_args(args);
    args.push_back(s.output_arg("out"));
    args.push_back(batch_arg(BatchField::kPositions, "positions"));
    args.push_back(batch_arg(BatchField::kSlots, "slots"));
    if (spec.prefill) args.push_back(batch_arg(BatchField::kNumSingles, "num_singles"));
    args.push_back(count_arg(RowCount::kTokens));
    return {spec, args};
}

// ---- Operators that stand alone: the step's first, and those behind it

template <class Spec>
Lowered with_epilogue(const StepReader& s, Spec spec, std::vector<Arg> args) {
    spec.epilogue = read_epilogue(s, 1, s.op(0).outputs[0], args);
    return {std::move(spec), std::move(args)};
}

importer::Range columns_of_step(const StepReader& s) { return s.columns(s.last().outputs[0]); }

Lowered lower_rms_norm(const StepReader& s) {
    const Op& op = s.op(0);
    RmsNormSpec spec;
    importer::Range columns = columns_of_step(s);
    spec.out = columns.size();
    spec.group = op.as<importer::RmsNormAttrs>().group;
    if (spec.group == 0) spec.group = s.width(op.outputs[0]);
    spec.norm = s.norm(op);
    spec.x = s.view(op.inputs[0], columns.begin);
    spec.count = s.rows_of(op);
    return with_epilogue(
        s, spec,
        {s.input_arg(op.inputs[0], "x"), s.weight_arg(op, 0, "weight"), s.output_arg("out")});
}

Lowered lower_rope(const StepReader& s) {
    const Op& op = s.op(0);
    importer::Range columns = columns_of_step(s);
    RopeOnlySpec spec{columns.size(), op.as<importer::RopeAttrs>().head_dim, *rope_spec(&op),
                      s.view(op.inputs[0], columns.begin)};
    return with_epilogue(s, spec,
                         {s.input_arg(op.inputs[0], "x"), s.rope_arg(op, "table"),
                          immediate_arg(s.context(), "context"),
                          batch_arg(BatchField::kPositions, "positions"), s.output_arg("out")});
}

Lowered lower_kv_append(const StepReader& s) {
    const Op& op = s.only(OpKind::kKvAppend);
    KvAppendSpec spec;
    spec.slab = s.slab();
    const planner::KvSlab& slab = s.kv_slab();
    spec.kv_heads = slab.kv_heads;
    spec.k = s.view(op.inputs[0], slab.kv_heads.begin * slab.head_dim);
    spec.v = s.view(op.inputs[1], slab.kv_heads.begin * slab.v_head_dim);
    std::vector<Arg> args = {s.input_arg(op.inputs[0], "k"), s.input_arg(op.inputs[1], "v")};
    s.add_kv_args(args);
    args.push_back(batch_arg(BatchField::kPositions, "positions"));
    args.push_back(batch_arg(BatchField::kSlots, "slots"));
    return {spec, args};
}

Lowered lower_gated_activation(const StepReader& s) {
    const Op& op = s.op(0);
    importer::Range columns = columns_of_step(s);
    GatedActivationSpec spec{columns.size(), op.as<importer::GatedActivationAttrs>().activation,
                             s.view(op.inputs[0], columns.begin),
                             s.view(op.inputs[1], columns.begin)};
    return with_epilogue(
        s, spec,
        {s.input_arg(op.inputs[0], "gate"), s.input_arg(op.inputs[1], "up"), s.output_arg("out")});
}

Lowered lower_add(const StepReader& s) {
    const Op& op = s.op(0);
    importer::Range columns = columns_of_step(s);
    AddSpec spec{columns.size(), s.view(op.inputs[0], columns.begin),
                 s.view(op.inputs[1], columns.begin), s.rows_of(op)};
    return with_epilogue(
        s, spec,
        {s.input_arg(op.inputs[0], "x"), s.input_arg(op.inputs[1], "y"), s.output_arg("out")});
}

Lowered lower_scale(const StepReader& s) {
    const Op& op = s.op(0);
    importer::Range columns = columns_of_step(s);
    ScaleSpec spec{columns.size(), op.as<importer::ScaleAttrs>().factor,
                   s.view(op.inputs[0], columns.begin), s.rows_of(op),
                   op.as<importer::ScaleAttrs>().softcap};
    return with_epilogue(s, spec, {s.input_arg(op.inputs[0], "x"), s.output_arg("out")});
}

Lowered lower_select(const StepReader& s) {
    const Op& op = s.op(0);
    importer::Range columns = columns_of_step(s);
    SelectTokensSpec spec{columns.size(), s.view(op.inputs[0], columns.begin)};
    return with_epilogue(s, spec,
                         {s.input_arg(op.inputs[0], "x"),
                          batch_arg(BatchField::kOutputRows, "rows"), s.output_arg("out")});
}

}  // namespace

Lowered lower_step(const StepReader& s) {
    switch (s.compute().kernel) {
        case KernelKind::kEmbedding: return lower_embedding(s);
        case KernelKind::kNormQkvRopeAppend: return lower_qkv(s);
        case KernelKind::kAttention: return lower_attention(s);
        case KernelKind::kLinear:
        case KernelKind::kNormLinear: return lower_linear(s);
        case KernelKind::kNormGateUp: return lower_gate_up(s);
        case KernelKind::kRmsNorm: return lower_rms_norm(s);
        case KernelKind::kRope: return lower_rope(s);
        case KernelKind::kKvAppend: return lower_kv_append(s);
        case KernelKind::kGatedActivation: return lower_gated_activation(s);
        case KernelKind::kAdd: return lower_add(s);
        case KernelKind::kScale: return lower_scale(s);
        case KernelKind::kSelectTokens: return lower_select(s);
        case KernelKind::kTensor: {
            TensorKernel kernel = lower_tensor(s);
            return {std::move(kernel.spec), std::move(kernel.args)};
        }
        case KernelKind::kOpaque: break;
    }
    const Op& op = s.opaque();
    const auto& attrs = op.as<importer::OpaqueAttrs>();
    throw UserError(
        "operator {} ({}{}{}, layer {}) has no kernel{}{}: Cleave can plan and export it, but not "
        "run it; "
        "export the model with standard Llama operators, or use $plan_only or $export_plan",
        op.name, attrs.domain, attrs.domain.empty() ? "" : "::", attrs.op_type, op.layer,
        attrs.reason.empty() ? "" : ", because ", attrs.reason);
}

}  // namespace cleave::codegen
