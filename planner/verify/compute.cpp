// SPDX-License-Identifier: Apache-2.0
// The verifier's own rules: from the columns that an operator finds on a device and the weight
// rectangle it is given, the columns that it computes there, and whether they are whole or a
// summand.
#include <algorithm>

#include "planner/plan/foreign_op.h"
#include "planner/verify/walk.h"
#include "runtime/base/rounding.h"

namespace cleave::planner::verify {
namespace {

using importer::Op;
using importer::OpKind;

class ComputeWalk {
public:
    ComputeWalk(PhaseWalk& walk, const Compute& compute) : walk_(walk), step_(compute) {}
    void run();

private:
    using Result =
        std::optional<Known>;  // nothing: already reported, what follows from it is not known

    Result apply(OpId id, const Op& op);
    Result embedding(OpId id, const Op& op);
    Result rms_norm(OpId id, const Op& op);
    Result linear(OpId id, const Op& op);
    Result rope(OpId id, const Op& op);
    Result kv_append(OpId id, const Op& op);
    Result attention(OpId id, const Op& op);
    Result same_columns(OpId id, const Op& op);
    Result opaque(OpId id, const Op& op);
    Result foreign(OpId id, const Op& op, const ForeignOp& rule);
    void foreign_weights(const Op& op, const ForeignOp& rule, Range columns, Range contraction);

    Result operand(const Op& op, size_t input);
    Result complete_operand(const Op& op, size_t input);
    std::optional<Range> heads(const Op& op, const Known& x, int64_t head_dim);
    const WeightShard* weight(const Op& op, size_t index);
    const KvSlab* slab(const Op& op, ValueId state);
    void outputs();
    void leftovers();

    PhaseWalk& walk_;
    const Compute& step_;
    std::map<ValueId, Result> inner_;  // made in this step
    std::vector<ValueId> consumed_;    // from outside, in order
    size_t next_weight_ = 0;
};

ComputeWalk::Result ComputeWalk::operand(const Op& op, size_t input) {
    ValueId value = op.inputs[input];
    if (auto found = inner_.find(value); found != inner_.end()) return found->second;
    for (PlacedId id : step_.inputs) {
        if (walk_.placed(id).value != value) continue;
        if (std::find(consumed_.begin(), consumed_.end(), value) == consumed_.end())
            consumed_.push_back(value);
        return walk_.read(id, step_.device);
    }
    walk_.fail("operand-missing", "{} needs {}, which is no input of the step", op.name,
               walk_.value_name(value));
    return std::nullopt;
}

ComputeWalk::Result ComputeWalk::complete_operand(const Op& op, size_t input) {
    Result x = operand(op, input);
    if (x && (!x->complete || !x->has_bias)) {
        walk_.fail("partial-read", "{} needs {} whole, and finds a summand", op.name,
                   walk_.value_name(op.inputs[input]));
        return std::nullopt;
    }
    return x;
}

// The columns of x as whole heads.
std::optional<Range> ComputeWalk::heads(const Op& op, const Known& x, int64_t head_dim) {
    if (x.columns.begin % head_dim == 0 && x.columns.end % head_dim == 0)
        return Range{x.columns.begin / head_dim, x.columns.end / head_dim};
    walk_.fail("operand-sharding", "{} finds columns {}, which are no whole heads of {}", op.name,
               range_text(x.columns), head_dim);
    return std::nullopt;
}

// The shard given for the operator's weight; a bias may be left out where another device adds it.
const WeightShard* ComputeWalk::weight(const Op& op, size_t index) {
    WeightId id = op.weights[index];
    const std::string& name = walk_.graph().weight(id).name;
    const WeightShard* shard = nullptr;
    if (next_weight_ < step_.weights.size()) {
        WeightShardId next = step_.weights[next_weight_];
        if (walk_.plan().weights[next.index()].weight == id) {
            shard = &walk_.plan().weights[next.index()];
            walk_.trace().weights_used[next.index()] = true;
            ++next_weight_;
        }
    }
    if (!shard) {
        if (op.kind != OpKind::kLinear || index == 0)
            walk_.fail("weight-missing", "{} needs {} next among the step's weights", op.name,
                       name);
    } else if (shard->device != step_.device) {
        walk_.fail("weight-device", "{} reads {} on {}", op.name, name,
                   walk_.device_name(shard->device));
    }
    return shard;
}

const KvSlab* ComputeWalk::slab(const Op& op, ValueId state) {
    if (!step_.kv.valid()) {
        walk_.fail("kv-slab", "{} has no KV slab", op.name);
        return nullptr;
    }
    const KvSlab& s = walk_.plan().kv_slabs[step_.kv.index()];
    if (s.state != state)
        walk_.fail("kv-slab", "{} is given the slab of {}", op.name, walk_.value_name(s.state));
    else if (s.device != step_.device)
        walk_.fail("kv-slab", "{} is given a slab on {}", op.name, walk_.device_name(s.device));
    else
        return &s;
    return nullptr;
}

ComputeWalk::Result ComputeWalk::embedding(OpId id, const Op& op) {
    operand(op, 0);
    const WeightShard* w = weight(op, 0);
    if (!w) return std::nullopt;
    Known y{.columns = w->columns, .contraction = w->rows, .source = id};
    y.complete = w->rows == Range{0, walk_.graph().weight(w->weight).shape[0]};
    walk_.execute(id, step_.device, y.columns, y.contraction);
    return y;
}

ComputeWalk::Result ComputeWalk::rms_norm(OpId id, const Op& op) {
    Result x = complete_operand(op, 0);
    if (!op.weights.empty())
        if (const WeightShard* w = weight(op, 0)) {
            Range whole{0, walk_.graph().weight(w->weight).shape[0]};
            if (w->rows != whole)
                walk_.fail("weight-box", "{} needs its whole weight, and has {}", op.name,
                           range_text(w->rows));
        }
    if (!x) return x;
    int64_t group = op.as<importer::RmsNormAttrs>().group;
    if (group == 0) group = whole_columns(walk_.graph(), op.inputs[0]).end;
    if (group == 0 || x->columns.begin % group != 0 || x->columns.end % group != 0) {
        walk_.fail("operand-sharding", "{} normalises {} columns together and finds {}", op.name,
                   group, range_text(x->columns));
        return std::nullopt;
    }
    // The kernel of q, k and v normalises what it has multiplied head by head.
    const Graph& graph = walk_.graph();
    const bool is_product = std::ranges::any_of(step_.ops, [&](OpId other) {
        return graph.op(other).kind == OpKind::kLinear &&
               graph.op(other).outputs[0] == op.inputs[0];
    });
    if (step_.kernel == KernelKind::kNormQkvRopeAppend && step_.kv.valid() && is_product &&
        group != walk_.plan().kv_slabs[step_.kv.index()].head_dim)
        walk_.fail("operand-sharding", "{} normalises {} columns together, a head has {}", op.name,
                   group, walk_.plan().kv_slabs[step_.kv.index()].head_dim);
    walk_.execute(id, step_.device, x->columns);
    return Known{.columns = x->columns};
}

ComputeWalk::Result ComputeWalk::linear(OpId id, const Op& op) {
    Result x = complete_operand(op, 0);
    const WeightShard* w = weight(op, 0);
    bool has_bias = op.as<importer::LinearAttrs>().has_bias;
    const WeightShard* bias = has_bias ? weight(op, 1) : nullptr;
    if (!w) return std::nullopt;
    if (x && !contains(x->columns, w->columns))
        walk_.fail("operand-sharding", "{} multiplies columns {} of {}, and finds {}", op.name,
                   range_text(w->columns), walk_.value_name(op.inputs[0]), range_text(x->columns));
    if (walk_.graph().weight(w->weight).quantization.dynamic_activations &&
        w->columns != whole_columns(walk_.graph(), op.inputs[0]))
        walk_.fail("operand-sharding",
                   "{} rounds by the smallest and largest element of all its input, and sums over "
                   "columns {} alone",
                   op.name, range_text(w->columns));
    if (bias && bias->rows != w->rows)
        walk_.fail("weight-box", "{} computes {} and adds the bias of {}", op.name,
                   range_text(w->rows), range_text(bias->rows));
    Known y{
        .columns = w->rows, .has_bias = !has_bias || bias, .contraction = w->columns, .source = id};
    y.complete = w->columns == whole_columns(walk_.graph(), op.inputs[0]);
    walk_.execute(id, step_.device, y.columns, y.contraction);
    return y;
}

ComputeWalk::Result ComputeWalk::rope(OpId id, const Op& op) {
    const auto& attrs = op.as<importer::RopeAttrs>();
    Result x = complete_operand(op, 0);
    bool found = false;
    for (RopeShardId i : step_.rope_tables) {
        const RopeShard& s = walk_.plan().rope_tables[i.index()];
        if (s.table != attrs.table || s.device != step_.device) continue;
        found = true;
        walk_.trace().ropes_used[i.index()] = true;
    }
    if (!found)
        walk_.fail("rope-missing", "{} needs its table on {}", op.name,
                   walk_.device_name(step_.device));
    if (!x || !heads(op, *x, attrs.head_dim)) return std::nullopt;
    walk_.execute(id, step_.device, x->columns);
    return Known{.columns = x->columns};
}

ComputeWalk::Result ComputeWalk::kv_append(OpId id, const Op& op) {
    const auto& attrs = op.as<importer::KvAppendAttrs>();
    Result k = complete_operand(op, 0), v = complete_operand(op, 1);
    const KvSlab* s = slab(op, op.outputs[0]);
    if (!k || !v || !s) return std::nullopt;
    auto k_heads = heads(op, *k, attrs.head_dim), v_heads = heads(op, *v, attrs.v_head_dim);
    if (!k_heads || !v_heads) return std::nullopt;
    if (*k_heads != *v_heads)
        walk_.fail("operand-sharding", "{} finds keys of heads {} and values of {}", op.name,
                   range_text(*k_heads), range_text(*v_heads));
    if (!contains(s->kv_heads, *k_heads))
        walk_.fail("kv-slab", "{} appends heads {} to a slab of {}", op.name, range_text(*k_heads),
                   range_text(s->kv_heads));
    if (walk_.trace().appended[step_.kv.index()].add(*k_heads))
        walk_.fail("computed-once", "{} appends heads {} again", op.name, range_text(*k_heads));
    walk_.execute(id, step_.device, *k_heads);
    return Known{.columns = *k_heads};
}

ComputeWalk::Result ComputeWalk::attention(OpId id, const Op& op) {
    const auto& attrs = op.as<importer::AttentionAttrs>();
    Result q = complete_operand(op, 0);
    const KvSlab* s = slab(op, op.inputs[1]);
    if (!q) return std::nullopt;
    auto h = heads(op, *q, attrs.head_dim);
    if (!h) return std::nullopt;
    if (*h != step_.heads)
        walk_.fail("heads", "{} computes heads {}, the step says {}", op.name, range_text(*h),
                   range_text(step_.heads));
    const int64_t group = attrs.num_heads / attrs.num_kv_heads;
    const Range needed{h->begin / group, ceil_div(h->end, group)};
    if (s && !contains(s->kv_heads, needed))
        walk_.fail("kv-slab", "{} needs KV heads {}, the slab has {}", op.name, range_text(needed),
                   range_text(s->kv_heads));
    else if (s && !walk_.trace().appended[step_.kv.index()].covers(needed))
        walk_.fail("kv-append", "{} reads KV heads {} on {} before they are appended", op.name,
                   range_text(needed), walk_.device_name(step_.device));
    walk_.execute(id, step_.device, *h);
    return Known{.columns = {h->begin * attrs.v_head_dim, h->end * attrs.v_head_dim}};
}

// GatedActivation, Add, Scale, SelectTokens: column by column.
ComputeWalk::Result ComputeWalk::same_columns(OpId id, const Op& op) {
    if (op.kind == OpKind::kScale) {  // of a summand: a summand, unless it is capped
        const bool linear = op.as<importer::ScaleAttrs>().softcap == 0;
        Result x = linear ? operand(op, 0) : complete_operand(op, 0);
        if (x) walk_.execute(id, step_.device, x->columns, x->contraction);
        return x;
    }
    Result first = complete_operand(op, 0);
    for (size_t i = 1; i < op.inputs.size(); ++i) {
        Result other = complete_operand(op, i);
        if (!other) return std::nullopt;
        // A residual that is whole is added by its columns to a product of some.
        if (first && op.kind == OpKind::kAdd && op.inputs.size() == 2) {
            if (contains(other->columns, first->columns)) other->columns = first->columns;
            if (contains(first->columns, other->columns)) first->columns = other->columns;
        }
        if (first && other->columns != first->columns) {
            walk_.fail("operand-sharding", "{} finds columns {} and {}", op.name,
                       range_text(first->columns), range_text(other->columns));
            return std::nullopt;
        }
    }
    if (first) walk_.execute(id, step_.device, first->columns);
    return first ? Result(Known{.columns = first->columns}) : std::nullopt;
}

// Nothing is known of it: everything must be whole.
ComputeWalk::Result ComputeWalk::opaque(OpId id, const Op& op) {
    for (size_t i = 0; i < op.inputs.size(); ++i) {
        Result x = complete_operand(op, i);
        if (x && x->columns != whole_columns(walk_.graph(), op.inputs[i]))
            walk_.fail("operand-sharding", "{} needs all of {}", op.name,
                       walk_.value_name(op.inputs[i]));
    }
    for (size_t i = 0; i < op.weights.size(); ++i) {
        const WeightShard* w = weight(op, i);
        if (!w) continue;
        const auto& shape = walk_.graph().weight(w->weight).shape;
        const bool rows = shape.empty() || w->rows == Range{0, shape[0]};
        const bool columns = shape.size() < 2 || w->columns == Range{0, shape[1]};
        if (!rows || !columns)
            walk_.fail("weight-box", "{} needs all of {}, and has rows {}, columns {}", op.name,
                       walk_.graph().weight(w->weight).name, range_text(w->rows),
                       range_text(w->columns));
    }
    walk_.execute(id, step_.device, {0, 1});
    return Known{};
}

// Of another compiler: only what it declares may be divided. Whatever the rule, its inputs are no
// summands.
ComputeWalk::Result ComputeWalk::foreign(OpId id, const Op& op, const ForeignOp& rule) {
    const bool elementwise = rule.split == ForeignSplit::kElementwise;
    const bool by_input = rule.split == ForeignSplit::kByInput;
    const Range all = whole_columns(walk_.graph(), op.outputs[0]);
    Range columns = all, contraction{0, 1};
    // A part of the output is what the step says that it makes; the weights have to agree.
    if (rule.split == ForeignSplit::kByOutput)
        for (PlacedId out : step_.outputs)
            if (walk_.placed(out).value == op.outputs[0]) columns = columns_of(walk_.placed(out));
    for (size_t i = 0; i < op.inputs.size(); ++i) {
        Result x = complete_operand(op, i);
        if (!x) return std::nullopt;
        if (elementwise && i == 0) columns = x->columns;
        if (by_input && i == 0) contraction = x->columns;
        const Range needed = elementwise          ? columns
                             : by_input && i == 0 ? contraction
                                                  : whole_columns(walk_.graph(), op.inputs[i]);
        if (x->columns != needed)
            walk_.fail("operand-sharding", "{} needs columns {} of {}, and finds {}", op.name,
                       range_text(needed), walk_.value_name(op.inputs[i]), range_text(x->columns));
    }
    if (rule.split == ForeignSplit::kByOutput || by_input) {
        const Range whole = by_input ? whole_columns(walk_.graph(), op.inputs[0]) : all;
        const Range part = by_input ? contraction : columns;
        const int64_t unit = std::max<int64_t>(1, whole.size() / rule.split_units);
        if (part.begin % unit != 0 || part.end % unit != 0)
            walk_.fail("operand-sharding", "{} is divided at columns {}, in units of {}", op.name,
                       range_text(part), unit);
    }
    foreign_weights(op, rule, columns, contraction);
    walk_.execute(id, step_.device, columns, contraction);
    Known y{.columns = columns, .contraction = contraction};
    if (by_input) {
        y.complete = contraction == whole_columns(walk_.graph(), op.inputs[0]);
        y.source = id;
    }
    return y;
}

void ComputeWalk::foreign_weights(const Op& op, const ForeignOp& rule, Range columns,
                                  Range contraction) {
    const bool cut_rows =
        rule.split == ForeignSplit::kByOutput || rule.split == ForeignSplit::kElementwise;
    for (size_t i = 0; i < op.weights.size(); ++i) {
        const WeightShard* w = weight(op, i);
        if (!w) continue;
        const auto& shape = walk_.graph().weight(w->weight).shape;
        if (shape.size() != 2) {
            walk_.fail("weight-box", "{} has a weight that is no matrix", op.name);
            continue;
        }
        const Range rows = cut_rows ? columns : Range{0, shape[0]};
        const Range features =
            rule.split == ForeignSplit::kByInput ? contraction : Range{0, shape[1]};
        if (w->rows != rows || w->columns != features)
            walk_.fail("weight-box",
                       "{} needs rows {}, columns {} of {}, and has rows {}, columns {}", op.name,
                       range_text(rows), range_text(features), walk_.graph().weight(w->weight).name,
                       range_text(w->rows), range_text(w->columns));
    }
}

ComputeWalk::Result ComputeWalk::apply(OpId id, const Op& op) {
    switch (op.kind) {
        case OpKind::kEmbedding: return embedding(id, op);
        case OpKind::kRmsNorm: return rms_norm(id, op);
        case OpKind::kLinear: return linear(id, op);
        case OpKind::kRope: return rope(id, op);
        case OpKind::kKvAppend: return kv_append(id, op);
        case OpKind::kAttention: return attention(id, op);
        case OpKind::kOpaque:
        case OpKind::kTensor: {
            const std::optional<ForeignOp> rule = foreign_op(op);
            return rule ? foreign(id, op, *rule) : opaque(id, op);
        }
        default: return same_columns(id, op);
    }
}

void ComputeWalk::outputs() {
    for (PlacedId id : step_.outputs) {
        const PlacedValue& out = walk_.placed(id);
        auto made = inner_.find(out.value);
        if (made == inner_.end()) {
            walk_.fail("output-value", "{} is an output that no operator of the step makes",
                       walk_.value_name(out.value));
            continue;
        }
        // Values between operators over tensors are nowhere in memory.
        const Op& last = walk_.graph().op(step_.ops.back());
        if (step_.kernel == KernelKind::kTensor &&
            std::find(last.outputs.begin(), last.outputs.end(), out.value) == last.outputs.end())
            walk_.fail("output-value", "{} is an output, and its launch stores what {} makes",
                       walk_.value_name(out.value), last.name);
        Known known =
            made->second.value_or(Known{.columns = columns_of(out), .complete = !out.partial});
        bool whole = known.complete && known.has_bias;
        if (!out.partial && !whole)
            walk_.fail("partial-sum", "{} is called whole, and is a summand over {}{}",
                       walk_.value_name(out.value), range_text(known.contraction),
                       known.has_bias ? "" : " without its bias");
        walk_.write(id, out.value, step_.device, known);
    }
}

// Inputs and weights that no operator used, or not in the order in which kernels take them.
void ComputeWalk::leftovers() {
    if (next_weight_ != step_.weights.size())
        walk_.fail("weight-order", "{} of {} weights are used in the order of the operators",
                   next_weight_, step_.weights.size());
    std::vector<ValueId> given;
    for (PlacedId id : step_.inputs) given.push_back(walk_.placed(id).value);
    if (given == consumed_) return;
    for (ValueId v : given)
        if (std::find(consumed_.begin(), consumed_.end(), v) == consumed_.end())
            return walk_.fail("operand-unused", "no operator of the step reads {}",
                              walk_.value_name(v));
    walk_.fail("operand-order", "the inputs are not in the order in which the operators take them");
}

void ComputeWalk::run() {
    const Graph& graph = walk_.graph();
    if (step_.ops.empty()) walk_.fail("kernel", "a step without operators");
    if (!kernel_fits(graph, step_))
        walk_.fail("kernel", "these operators are no {}", kernel_kind_name(step_.kernel));
    OpId previous;
    for (OpId id : step_.ops) {
        const Op& op = graph.op(id);
        if (id <= previous) walk_.fail("op-order", "{} stands out of order", op.name);
        previous = id;
        Result result = apply(id, op);
        if (keeps_onnx_form(op) && !foreign_op(op))
            for (ValueId v : op.outputs) inner_[v] = Known{.columns = whole_columns(graph, v)};
        else
            inner_[op.outputs[0]] = result;
    }
    outputs();
    leftovers();
    if (step_.kernel == KernelKind::kNormQkvRopeAppend && step_.kv.valid() &&
        !step_.outputs.empty()) {
        const int64_t head_dim = walk_.plan().kv_slabs[step_.kv.index()].head_dim;
        Range columns = columns_of(walk_.placed(step_.outputs[0]));
        if (columns != Range{step_.heads.begin * head_dim, step_.heads.end * head_dim})
            walk_.fail("heads", "columns {} are not heads {}", range_text(columns),
                       range_text(step_.heads));
    }
}

}  // namespace

void walk_compute(PhaseWalk& walk, const Compute& compute) { ComputeWalk(walk, compute).run(); }

}  // namespace cleave::planner::verify
