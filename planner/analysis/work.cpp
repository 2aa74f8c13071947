// SPDX-License-Identifier: Apache-2.0
#include "planner/analysis/work.h"

#include <algorithm>

#include "planner/analysis/storage.h"
#include "planner/plan/foreign_op.h"
#include "planner/plan/plan_queries.h"

namespace cleave::planner {

using namespace importer;

Amount operator+(const Amount& a, const Amount& b) {
    return {a.constant + b.constant, a.per_token + b.per_token, a.per_output + b.per_output,
            a.per_key + b.per_key};
}

Amount operator*(const Amount& a, int64_t n) {
    return {a.constant * n, a.per_token * n, a.per_output * n, a.per_key * n};
}

namespace {

// `n` a row of `value`.
Amount per_row(const Value& value, int64_t n, const Workload& workload) {
    switch (rows_of(value)) {
        case Rows::kTokens: return {0, n, 0, 0};
        case Rows::kOutputs: return {0, 0, n, 0};
        case Rows::kSequences: return {n * workload.batch, 0, 0, 0};
        case Rows::kNone: return {n, 0, 0, 0};
    }
    return {};
}

// Elements of the fixed dimensions, without the leading one where that counts rows.
int64_t row_elements(const Value& value) {
    int64_t n = 1;
    for (size_t i = rows_of(value) != Rows::kNone ? 1 : 0; i < value.shape.size(); ++i)
        n *= value.shape[i].is_static() ? value.shape[i].value : 1;
    return n;
}

// The same of `features` columns alone.
int64_t column_elements(const Value& value, int64_t features) {
    if (rows_of(value) != Rows::kNone) return features;
    const int64_t width = value.shape.empty() ? 1 : value.shape.back().value;
    return row_elements(value) / std::max<int64_t>(1, width) * features;
}

DType kv_dtype(const Workload& workload) { return workload.kv_dtype.value_or(DType::kF16); }

// The KV heads that `query` heads need.
Range kv_range(Range query, int64_t group) {
    return query.empty() ? Range{query.begin / group, query.begin / group}
                         : Range{query.begin / group, (query.end + group - 1) / group};
}

// The range of `split` that goes with `work` units of the group's own split.
Range work_of(const Split& group, const Split& op, Range work) {
    if (op.whole()) return {};
    if (group.axis == Axis::kQueryHeads && op.axis == Axis::kKvHeads)
        return kv_range(work, op.group);
    return work;
}

// The part of a whole operator's amount that `work` of its units is.
Amount share_of(const Amount& whole, const OpSplit& split, Range work) {
    if (split.work.whole()) return whole;
    const auto part = [&](int64_t n) {
        return static_cast<int64_t>(static_cast<__int128>(n) * work.size() / split.work.units);
    };
    return {part(whole.constant), part(whole.per_token), part(whole.per_output),
            part(whole.per_key)};
}

Amount op_flops(const Analysis& a, const Op& op, const OpSplit& split, Range work,
                const Workload& workload) {
    if (op.outputs.empty()) return {};
    const Value& out = a.graph.value(op.outputs[0]);
    bool whole = split.work.whole();
    int64_t width = whole ? row_elements(out) : work.size() * split.work.unit_size;
    switch (op.kind) {
        case OpKind::kLinear: {
            WeightBox box = weight_box(a.graph.weight(op.weights[0]), split, work);
            return per_row(out, 2 * box.rows.size() * box.columns.size(), workload);
        }
        case OpKind::kAttention: {
            const auto& t = op.as<AttentionAttrs>();
            int64_t heads = whole ? t.num_heads : work.size();
            return {0, 0, 0, heads * (2 * (t.head_dim + t.v_head_dim) + 8)};
        }
        case OpKind::kOpaque: return {op.as<OpaqueAttrs>().flops, 0, 0, 0};
        case OpKind::kTensor: {
            const ForeignOp foreign = foreign_op(op).value_or(ForeignOp{});
            const Amount flops{op.as<TensorAttrs>().flops, foreign.flops_per_token, 0, 0};
            return share_of(flops, split, work);
        }
        case OpKind::kRmsNorm: return per_row(out, 4 * width, workload);
        case OpKind::kRope: return per_row(out, 6 * width, workload);
        case OpKind::kGatedActivation: return per_row(out, 20 * width, workload);
        case OpKind::kKvAppend: return {};
        default: return per_row(out, width, workload);
    }
}

// KV that an append writes or an attention reads.
Amount kv_bytes(const Op& op, const OpSplit& split, Range work, const Workload& workload) {
    bool whole = split.work.whole();
    if (op.kind == OpKind::kKvAppend) {
        const auto& t = op.as<KvAppendAttrs>();
        int64_t heads = whole ? t.num_kv_heads : work.size();
        return {0, kv_position_bytes(kv_dtype(workload), heads, t.head_dim, t.v_head_dim), 0, 0};
    }
    if (op.kind == OpKind::kAttention) {
        const auto& t = op.as<AttentionAttrs>();
        int64_t heads = whole ? t.num_kv_heads : kv_range(work, split.work.group).size();
        return {0, 0, 0, kv_position_bytes(kv_dtype(workload), heads, t.head_dim, t.v_head_dim)};
    }
    return {};
}

}  // namespace

WeightBox weight_box(const Weight& weight, const OpSplit& split, Range work) {
    // Constants of a graph that is no Llama may be numbers.
    const std::vector<int64_t>& shape = weight.shape;
    WeightBox box{{0, shape.empty() ? 1 : shape[0]}, {0, shape.size() > 1 ? shape[1] : 1}};
    Range features{work.begin * split.work.unit_size, work.end * split.work.unit_size};
    if (split.weight == WeightCut::kRows) box.rows = features;
    if (split.weight == WeightCut::kColumns && weight.shape.size() > 1) box.columns = features;
    return box;
}

Amount value_bytes(const Value& value, int64_t features, const Workload& workload) {
    int64_t elements = features > 0 ? column_elements(value, features) : row_elements(value);
    return per_row(value, dtype_bytes(placed_dtype(value, workload), elements), workload);
}

LaunchAmounts launch_amounts(const Analysis& a, const FusedGroup& group, Range work,
                             const Workload& workload, bool with_epilogue) {
    LaunchAmounts total;
    for (OpId id : group.ops) {
        const Op& op = a.graph.op(id);
        const OpSplit& split = a.splits.ops[id.index()];
        Range op_work = work_of(group.split.work, split.work, work);
        total.flops = total.flops + op_flops(a, op, split, op_work, workload);
        total.activation_bytes = total.activation_bytes + kv_bytes(op, split, op_work, workload);
        if (op.kind == OpKind::kOpaque)
            total.activation_bytes.constant += op.as<OpaqueAttrs>().bytes;
        if (std::optional<ForeignOp> foreign = foreign_op(op))
            total.activation_bytes =
                total.activation_bytes +
                share_of({foreign->bytes, foreign->bytes_per_token, 0, 0}, split, op_work);
        for (WeightId w : op.weights) {
            const Weight& weight = a.graph.weight(w);
            WeightBox box = weight_box(weight, split, op_work);
            DType dtype = device_dtype(weight, workload);
            if (op.kind == OpKind::kEmbedding)  // reads only the rows it needs
                total.weight_bytes.per_token += dtype_bytes(dtype, box.columns.size());
            else
                total.weight_bytes.constant +=
                    shard_bytes(weight, box.rows.size(), box.columns.size(), dtype);
        }
    }
    auto count = [&](ValueId v) {
        const Split& split = a.splits.values[v.index()];
        int64_t features =
            split.whole() ? 0 : work_of(group.split.work, split, work).size() * split.unit_size;
        if (!split.whole() && features == 0) return;
        total.activation_bytes =
            total.activation_bytes + value_bytes(a.graph.value(v), features, workload);
    };
    for (ValueId v : group.inputs) count(v);
    for (ValueId v : group.outputs) count(v);
    if (with_epilogue && group.residual.valid()) count(group.residual);
    return total;
}

PassPoint decode_point(const Workload& w) {
    return {w.batch, w.batch, w.batch * (w.decode_past() + 1)};
}

int64_t num_prefill_passes(const Workload& w) {
    int64_t tokens = std::max<int64_t>(1, w.batch * w.prompt_tokens);
    int64_t chunk = std::max<int64_t>(1, std::min(w.prefill_chunk, tokens));
    return (tokens + chunk - 1) / chunk;
}

PassPoint prefill_point(const Workload& w) {
    int64_t tokens = std::max<int64_t>(1, w.batch * w.prompt_tokens);
    int64_t passes = num_prefill_passes(w);
    int64_t num_tokens = (tokens + passes - 1) / passes;
    // A token at position p sees p + 1 keys: (prompt + 1) / 2 on average.
    int64_t keys = num_tokens * ((w.prompt_tokens + 1) / 2);
    return {num_tokens, w.all_logits ? num_tokens : std::min(w.batch, num_tokens),
            std::max<int64_t>(keys, num_tokens)};
}

}  // namespace cleave::planner
