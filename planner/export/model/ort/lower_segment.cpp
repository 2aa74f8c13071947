// SPDX-License-Identifier: Apache-2.0
#include "planner/export/model/ort/lower_segment.h"

#include <limits>

#include "planner/analysis/sharding.h"
#include "planner/export/model/ort/onnx_graph.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

using namespace importer;

// A value of the segment, and which columns of the whole it has.
struct Local {
    std::string name;
    Range columns;
};

class SegmentLowering {
public:
    SegmentLowering(const Plan& plan, const Segment& segment, TensorFile& data,
                    const std::string& data_file)
        : plan_(plan),
          graph_(plan.graph),
          segment_(segment),
          data_(data),
          g_(fmt::format("{} stage {}", plan.graph.name, segment.stage), data_file) {}

    onnx::ModelProto run() {
        for (const DeviceTensor& t : segment_.inputs) {
            locals_[t.value] = {t.name, t.columns};
            if (graph_.value(t.value).kind == ValueKind::kTokenIds)
                g_.input(t.name, onnx::TensorProto::INT64, {"batch", "sequence"});
            else
                activation(t, true);
        }
        for (KvSlabId slab : segment_.reads) declare_kv(slab, "present", "total", true);
        for (const SegmentOp& op : segment_.ops) lower(op);
        for (const DeviceTensor& t : segment_.outputs) activation(t, false);
        for (KvSlabId slab : segment_.appends) declare_kv(slab, "present", "total", false);
        return g_.model();
    }

private:
    void activation(const DeviceTensor& t, bool is_input) {
        const OnnxDims dims{"batch", "sequence", t.columns.size()};
        if (is_input)
            g_.input(t.name, onnx::TensorProto::FLOAT, dims);
        else
            g_.output(t.name, onnx::TensorProto::FLOAT, dims);
    }
    static std::string kv_name(const std::string& prefix, int layer, bool is_key) {
        return fmt::format("{}.{}.{}", prefix, layer, is_key ? "key" : "value");
    }
    void declare_kv(KvSlabId id, const std::string& prefix, const std::string& length,
                    bool is_input) {
        const KvSlab& slab = plan_.kv_slabs[id.index()];
        for (bool is_key : {true, false}) {
            const OnnxDims dims{"batch", slab.kv_heads.size(), length,
                                is_key ? slab.head_dim : slab.v_head_dim};
            const std::string name = kv_name(prefix, layer_of(plan_, slab), is_key);
            if (is_input)
                g_.input(name, kv_type(), dims);
            else
                g_.output(name, kv_type(), dims);
        }
    }
    bool f16_kv() const { return plan_.workload.kv_dtype == DType::kF16; }
    int kv_type() const { return f16_kv() ? onnx::TensorProto::FLOAT16 : onnx::TensorProto::FLOAT; }

    void lower(const SegmentOp& item) {
        const Op& op = graph_.op(item.op);
        item_ = &item;
        g_.scope(op.name);
        Local result{item.result.name, {}};
        switch (op.kind) {
            case OpKind::kEmbedding: embedding(op, result); break;
            case OpKind::kRmsNorm: rms_norm(op, result); break;
            case OpKind::kLinear: linear(op, result); break;
            case OpKind::kRope: rope(op, result); break;
            case OpKind::kKvAppend: return kv_append(op);
            case OpKind::kAttention: attention(op, result); break;
            case OpKind::kGatedActivation: gated_activation(op, result); break;
            case OpKind::kAdd: add(op, result); break;
            case OpKind::kScale: scale(op, result); break;
            case OpKind::kSelectTokens:  // every token's logits are computed
                result.columns = in(op, 0).columns;
                g_.node("Identity", {in(op, 0).name}, {}, result.name);
                break;
            case OpKind::kOpaque:
            case OpKind::kTensor: CLEAVE_CHECK(false) << op.name << " is no Llama operator";
        }
        locals_[op.outputs[0]] = result;
    }

    const Local& in(const Op& op, size_t i) const { return locals_.at(op.inputs.at(i)); }

    const WeightShard* find_weight(const Op&, size_t i) const {
        return find_shard(plan_, *item_, i);
    }
    const WeightShard& weight(const Op&, size_t i) const { return shard_of(plan_, *item_, i); }

    // Columns `wanted` of a value that has these or more.
    std::string slice(const Local& x, Range wanted) {
        if (wanted == x.columns) return x.name;
        CLEAVE_CHECK(x.columns.begin <= wanted.begin && wanted.end <= x.columns.end)
            << x.name << " lacks columns that its reader needs";
        return g_.node("Slice", {x.name, g_.ints({wanted.begin - x.columns.begin}),
                                 g_.ints({wanted.end - x.columns.begin}), g_.ints({-1})});
    }

    void embedding(const Op& op, Local& result) {
        const WeightShard& shard = weight(op, 0);
        const Weight& table = graph_.weight(shard.weight);
        result.columns = {0, table.shape[1]};
        std::string ids = in(op, 0).name, rows = g_.external(data_.weight(shard, false));
        const double factor = op.as<EmbeddingAttrs>().scale;
        const bool whole = shard.rows.size() == table.shape[0];
        auto name = [&](bool last) { return last ? result.name : std::string(); };
        if (whole) {
            std::string y = g_.node("Gather", {rows, ids}, {}, name(factor == 1.0));
            if (factor != 1.0) g_.node("Mul", {y, number(factor)}, {}, result.name);
            return;
        }
        // Rows of other devices' tokens are zero: the sum over devices has each token's once.
        std::string local = g_.node("Sub", {ids, g_.integer(shard.rows.begin)});
        std::string held =
            g_.node("And", {g_.node("GreaterOrEqual", {local, g_.integer(0)}),
                            g_.node("Less", {local, g_.integer(shard.rows.size())})});
        std::string y = g_.node("Gather", {rows, g_.node("Where", {held, local, g_.integer(0)})});
        if (factor != 1.0) y = g_.node("Mul", {y, number(factor)});
        g_.node("Where", {g_.node("Unsqueeze", {held, g_.ints({-1})}), y, number(0)}, {},
                result.name);
    }

    std::string number(double value) { return g_.scalar(static_cast<float>(value)); }

    void rms_norm(const Op& op, Local& result) {
        const auto& attrs = op.as<RmsNormAttrs>();
        const Local& x = in(op, 0);
        result.columns = x.columns;
        const bool grouped = attrs.group > 0 && attrs.group != x.columns.size();
        std::string y = x.name;
        if (grouped) y = g_.node("Reshape", {y, g_.ints({0, 0, -1, attrs.group})});
        std::string mean =
            g_.node("ReduceMean", {g_.node("Mul", {y, y})}, {{"axes", std::vector<int64_t>{-1}}});
        std::string root = g_.node("Sqrt", {g_.node("Add", {mean, number(attrs.epsilon)})});
        std::string w = g_.external(data_.weight(weight(op, 0), false));
        if (attrs.weight_offset != 0) w = g_.node("Add", {w, number(attrs.weight_offset)});
        std::string normed = g_.node("Div", {y, root});
        if (!grouped) {
            g_.node("Mul", {normed, w}, {}, result.name);
            return;
        }
        g_.node("Reshape", {g_.node("Mul", {normed, w}), g_.ints({0, 0, -1})}, {}, result.name);
    }

    void linear(const Op& op, Local& result) {
        const WeightShard& shard = weight(op, 0);
        const WeightShard* bias = op.as<LinearAttrs>().has_bias ? find_weight(op, 1) : nullptr;
        result.columns = shard.rows;
        std::string x = slice(in(op, 0), shard.columns);
        std::string y = g_.node("MatMul", {x, g_.external(data_.weight(shard, true))}, {},
                                bias ? "" : result.name);
        if (bias) g_.node("Add", {y, g_.external(data_.weight(*bias, false))}, {}, result.name);
    }

    // [batch, sequence, 1, rotary_dim / 2] of this pass's positions; made once for all layers.
    std::string rope_rows(RopeTableId table, bool sine) {
        std::string& rows = rope_rows_[{table, sine}];
        if (!rows.empty()) return rows;
        need_positions();
        std::string all = g_.external(sine ? data_.rope_sin(table) : data_.rope_cos(table));
        rows = g_.node("Unsqueeze", {g_.node("Gather", {all, "position_ids"}), g_.ints({2})});
        return rows;
    }

    std::string last_axis(const std::string& x, int64_t begin, int64_t end, int64_t step = 1) {
        return g_.node("Slice",
                       {x, g_.ints({begin}), g_.ints({end}), g_.ints({-1}), g_.ints({step})});
    }

    void rope(const Op& op, Local& result) {
        const auto& a = op.as<RopeAttrs>();
        const Local& x = in(op, 0);
        result.columns = x.columns;
        std::string heads = g_.node("Reshape", {x.name, g_.ints({0, 0, -1, a.head_dim})});
        const int64_t half = a.rotary_dim / 2;
        std::string first =
            a.interleaved ? last_axis(heads, 0, a.rotary_dim, 2) : last_axis(heads, 0, half);
        std::string second = a.interleaved ? last_axis(heads, 1, a.rotary_dim, 2)
                                           : last_axis(heads, half, a.rotary_dim);
        std::string cos = rope_rows(a.table, false), sin = rope_rows(a.table, true);
        std::string turned_first =
            g_.node("Sub", {g_.node("Mul", {first, cos}), g_.node("Mul", {second, sin})});
        std::string turned_second =
            g_.node("Add", {g_.node("Mul", {second, cos}), g_.node("Mul", {first, sin})});
        std::vector<std::string> parts{turned_first, turned_second};
        if (a.interleaved) {
            std::string pairs = g_.node("Concat",
                                        {g_.node("Unsqueeze", {turned_first, g_.ints({-1})}),
                                         g_.node("Unsqueeze", {turned_second, g_.ints({-1})})},
                                        {{"axis", int64_t{-1}}});
            parts = {g_.node("Reshape", {pairs, g_.ints({0, 0, 0, a.rotary_dim})})};
        }
        if (a.rotary_dim < a.head_dim) parts.push_back(last_axis(heads, a.rotary_dim, a.head_dim));
        std::string whole =
            parts.size() == 1 ? parts[0] : g_.node("Concat", parts, {{"axis", int64_t{-1}}});
        g_.node("Reshape", {whole, g_.ints({0, 0, -1})}, {}, result.name);
    }

    // [batch, sequence, heads * dim] -> [batch, heads, sequence, dim]
    std::string heads_first(const std::string& x, int64_t dim) {
        return g_.node("Transpose", {g_.node("Reshape", {x, g_.ints({0, 0, -1, dim})})},
                       {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
    }

    void kv_append(const Op& op) {
        const KvSlabId id = item_->compute->kv;
        const KvSlab& slab = plan_.kv_slabs[id.index()];
        declare_kv(id, "past_key_values", "past", true);
        for (bool is_key : {true, false}) {
            const int64_t dim = is_key ? slab.head_dim : slab.v_head_dim;
            std::string fresh =
                slice(in(op, is_key ? 0 : 1), {slab.kv_heads.begin * dim, slab.kv_heads.end * dim});
            fresh = heads_first(fresh, dim);
            if (f16_kv())
                fresh = g_.node("Cast", {fresh}, {{"to", int64_t{onnx::TensorProto::FLOAT16}}});
            g_.node("Concat", {kv_name("past_key_values", op.layer, is_key), fresh},
                    {{"axis", int64_t{2}}}, kv_name("present", op.layer, is_key));
        }
    }

    std::string present(const KvSlab& slab, bool is_key) {
        std::string name = kv_name("present", layer_of(plan_, slab), is_key);
        if (!f16_kv()) return name;
        return g_.node("Cast", {name}, {{"to", int64_t{onnx::TensorProto::FLOAT}}});
    }

    void attention(const Op& op, Local& result) {
        const auto& a = op.as<AttentionAttrs>();
        const KvSlab& slab = plan_.kv_slabs[item_->compute->kv.index()];
        const Local& q = in(op, 0);
        const Range heads{q.columns.begin / a.head_dim, q.columns.end / a.head_dim};
        const int64_t group = a.num_heads / a.num_kv_heads;
        result.columns = {heads.begin * a.v_head_dim, heads.end * a.v_head_dim};
        std::string query = heads_first(q.name, a.head_dim);
        std::string key = present(slab, true), value = present(slab, false);
        const bool whole_groups =
            heads.begin == slab.kv_heads.begin * group && heads.end == slab.kv_heads.end * group;
        const bool grouped = whole_groups && group > 1;
        if (grouped) {  // [batch, KV heads, group, sequence, dim] against one key a group
            query = g_.node("Reshape",
                            {query, g_.ints({0, slab.kv_heads.size(), group, -1, a.head_dim})});
            key = g_.node("Unsqueeze", {key, g_.ints({2})});
            value = g_.node("Unsqueeze", {value, g_.ints({2})});
        } else if (!whole_groups) {
            std::vector<int64_t> of_head;
            for (int64_t h = heads.begin; h < heads.end; ++h)
                of_head.push_back(h / group - slab.kv_heads.begin);
            key = g_.node("Gather", {key, g_.ints(of_head)}, {{"axis", int64_t{1}}});
            value = g_.node("Gather", {value, g_.ints(of_head)}, {{"axis", int64_t{1}}});
        }
        const std::vector<int64_t> turned =
            grouped ? std::vector<int64_t>{0, 1, 2, 4, 3} : std::vector<int64_t>{0, 1, 3, 2};
        std::string scores = g_.node("MatMul", {g_.node("Mul", {query, number(a.scale)}),
                                                g_.node("Transpose", {key}, {{"perm", turned}})});
        if (a.softcap > 0) scores = soft_cap(scores, a.softcap);
        std::string bias = mask(a);
        if (grouped) bias = g_.node("Unsqueeze", {bias, g_.ints({1})});
        std::string weights =
            g_.node("Softmax", {g_.node("Add", {scores, bias})}, {{"axis", int64_t{-1}}});
        std::string y = g_.node("MatMul", {weights, value});
        if (grouped) y = g_.node("Reshape", {y, g_.ints({0, heads.size(), -1, a.v_head_dim})});
        y = g_.node("Transpose", {y}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
        g_.node("Reshape", {y, g_.ints({0, 0, -1})}, {}, result.name);
    }

    std::string soft_cap(const std::string& x, double cap, std::string output = {}) {
        std::string bent = g_.node("Tanh", {g_.node("Mul", {x, number(1.0 / cap)})});
        return g_.node("Mul", {bent, number(cap)}, {}, std::move(output));
    }

    // 0 where a query sees a key, the most negative number where it does not: [batch, 1, sequence,
    // total].
    std::string mask(const AttentionAttrs& a) {
        std::string& made = masks_[{a.causal, a.window}];
        if (!made.empty()) return made;
        need_positions();
        if (!has_mask_) g_.input("attention_mask", onnx::TensorProto::INT64, {"batch", "total"});
        has_mask_ = true;
        std::string total = axis_size("attention_mask", 1), length = axis_size("position_ids", 1);
        std::string seen = g_.node(
            "Unsqueeze",
            {g_.node("Cast", {"attention_mask"}, {{"to", int64_t{onnx::TensorProto::BOOL}}}),
             g_.ints({1, 2})});
        if (a.causal) {
            std::string keys = g_.node("Range", {g_.integer(0), total, g_.integer(1)});
            std::string queries =
                g_.node("Unsqueeze",
                        {g_.node("Range", {g_.node("Sub", {total, length}), total, g_.integer(1)}),
                         g_.ints({1})});
            seen = g_.node("And", {seen, g_.node("LessOrEqual", {keys, queries})});
            if (a.window > 0)
                seen = g_.node(
                    "And",
                    {seen,
                     g_.node("Greater", {keys, g_.node("Sub", {queries, g_.integer(a.window)})})});
        }
        made = g_.node("Where", {seen, number(0), number(std::numeric_limits<float>::lowest())});
        return made;
    }

    std::string axis_size(const std::string& x, int64_t axis) {
        return g_.node("Gather", {g_.node("Shape", {x}), g_.integer(axis)});
    }
    void need_positions() {
        if (!has_positions_)
            g_.input("position_ids", onnx::TensorProto::INT64, {"batch", "sequence"});
        has_positions_ = true;
    }

    void gated_activation(const Op& op, Local& result) {
        const Local &gate = in(op, 0), &up = in(op, 1);
        CLEAVE_CHECK(gate.columns == up.columns) << op.name << ": operands of unequal columns";
        result.columns = gate.columns;
        g_.node("Mul", {activate(op.as<GatedActivationAttrs>().activation, gate.name), up.name}, {},
                result.name);
    }

    std::string activate(Activation activation, const std::string& x) {
        switch (activation) {
            case Activation::kSilu: return g_.node("Mul", {x, g_.node("Sigmoid", {x})});
            case Activation::kRelu: return g_.node("Relu", {x});
            case Activation::kRelu2: {
                const std::string above = g_.node("Relu", {x});
                return g_.node("Mul", {above, above});
            }
            case Activation::kGeluErf: {
                std::string e = g_.node("Erf", {g_.node("Mul", {x, number(0.70710678118654752)})});
                return half_of(x, e);
            }
            case Activation::kGeluTanh: {
                std::string cube = g_.node("Mul", {g_.node("Mul", {x, x}), x});
                std::string inner = g_.node("Add", {x, g_.node("Mul", {cube, number(0.044715)})});
                // sqrt(2 / pi)
                return half_of(
                    x, g_.node("Tanh", {g_.node("Mul", {inner, number(0.79788456080286536)})}));
            }
        }
        CLEAVE_CHECK(false) << "unknown activation";
        return {};
    }
    // x / 2 * (1 + e)
    std::string half_of(const std::string& x, const std::string& e) {
        return g_.node("Mul", {g_.node("Mul", {x, number(0.5)}), g_.node("Add", {e, number(1)})});
    }

    void add(const Op& op, Local& result) {
        const Local &a = in(op, 0), &b = in(op, 1);
        // A device's columns of a product may meet a whole value.
        result.columns = a.columns.size() < b.columns.size() ? a.columns : b.columns;
        g_.node("Add", {slice(a, result.columns), slice(b, result.columns)}, {}, result.name);
    }

    void scale(const Op& op, Local& result) {
        const auto& attrs = op.as<ScaleAttrs>();
        result.columns = in(op, 0).columns;
        std::string y = g_.node("Mul", {in(op, 0).name, number(attrs.factor)}, {},
                                attrs.softcap > 0 ? "" : result.name);
        if (attrs.softcap > 0) soft_cap(y, attrs.softcap, result.name);
    }

    const Plan& plan_;
    const Graph& graph_;
    const Segment& segment_;
    TensorFile& data_;
    OnnxGraph g_;
    const SegmentOp* item_ = nullptr;
    std::map<ValueId, Local> locals_;
    std::map<std::pair<RopeTableId, bool>, std::string> rope_rows_;
    std::map<std::pair<bool, int64_t>, std::string> masks_;
    bool has_mask_ = false, has_positions_ = false;
};

}  // namespace

onnx::ModelProto lower_segment(const Plan& plan, const Segment& segment, TensorFile& data,
                               const std::string& data_file) {
    return SegmentLowering(plan, segment, data, data_file).run();
}

}  // namespace cleave::planner
