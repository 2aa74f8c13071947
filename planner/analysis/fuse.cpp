// SPDX-License-Identifier: Apache-2.0
#include "planner/analysis/fuse.h"

#include <algorithm>

#include "planner/analysis/tensor_chain.h"
#include "runtime/base/errors.h"

namespace cleave::planner {

using namespace importer;

namespace {

class Fuser {
public:
    Fuser(const Graph& graph, const GraphSplits& splits)
        : graph_(graph),
          splits_(splits),
          producer_(graph.values.size()),
          consumers_(graph.values.size()),
          is_output_(graph.values.size(), false),
          taken_(graph.ops.size(), false) {
        for (size_t i = 0; i < graph.ops.size(); ++i) {
            for (ValueId v : graph.ops[i].outputs) producer_[v.index()] = OpId(i);
            for (ValueId v : graph.ops[i].inputs) consumers_[v.index()].push_back(OpId(i));
        }
        for (ValueId v : graph.outputs) is_output_[v.index()] = true;
    }

    std::vector<FusedGroup> run() {
        for (size_t i = 0; i < graph_.ops.size(); ++i) fuse_qkv(OpId(i));
        for (size_t i = 0; i < graph_.ops.size(); ++i) fuse_gate_up(OpId(i));
        for (size_t i = 0; i < graph_.ops.size(); ++i) fuse_logits(OpId(i));
        for (size_t i = 0; i < graph_.ops.size(); ++i) fuse_linear(OpId(i));
        // Sums take their residuals first; what is left of a chain then goes to whoever makes its
        // input.
        for (FusedGroup& group : groups_) fuse_epilogue(group);
        for (size_t i = 0; i < graph_.ops.size(); ++i)
            if (!taken_[i])
                fuse_epilogue(add(single_kernel(graph_.ops[i].kind), {OpId(i)}, splits_.ops[i]));
        // A group's outputs are read only after its last operator, so that order is a valid one.
        std::sort(groups_.begin(), groups_.end(),
                  [](const FusedGroup& a, const FusedGroup& b) { return a.last < b.last; });
        return std::move(groups_);
    }

private:
    const Op& op(OpId id) const { return graph_.op(id); }
    bool free(OpId id) const { return id.valid() && !taken_[id.index()]; }
    const OpSplit& split(OpId id) const { return splits_.ops[id.index()]; }

    // The free producer of `value` when it is of that kind and nothing but `uses` operators reads
    // it.
    OpId producer_of_kind(ValueId value, OpKind kind, size_t uses = 1) const {
        OpId id = producer_[value.index()];
        if (!free(id) || op(id).kind != kind || is_output_[value.index()]) return {};
        return consumers_[value.index()].size() == uses ? id : OpId{};
    }
    OpId only_consumer(ValueId value, OpKind kind) const {
        if (is_output_[value.index()] || consumers_[value.index()].size() != 1) return {};
        OpId id = consumers_[value.index()][0];
        return free(id) && op(id).kind == kind ? id : OpId{};
    }

    // Linear [, RmsNorm per head] [, Rope] that ends in `value`: appends its operators, gives the
    // Linear's input.
    ValueId trace_projection(ValueId value, bool rope, std::vector<OpId>& ops) const {
        if (rope)
            if (OpId r = producer_of_kind(value, OpKind::kRope); r.valid()) {
                ops.push_back(r);
                value = op(r).inputs[0];
            }
        if (rope)
            if (OpId n = producer_of_kind(value, OpKind::kRmsNorm);
                n.valid() && op(n).as<RmsNormAttrs>().group < last_dimension(graph_.value(value))) {
                ops.push_back(n);
                value = op(n).inputs[0];
            }
        OpId linear = producer_of_kind(value, OpKind::kLinear);
        if (!linear.valid()) return {};
        ops.push_back(linear);
        return op(linear).inputs[0];
    }

    // The RmsNorm over whole rows before `value`, when only `uses` operators read it.
    void take_norm(ValueId value, size_t uses, std::vector<OpId>& ops) const {
        OpId norm = producer_of_kind(value, OpKind::kRmsNorm, uses);
        if (norm.valid() &&
            op(norm).as<RmsNormAttrs>().group == last_dimension(graph_.value(value)))
            ops.push_back(norm);
    }

    void fuse_qkv(OpId append) {
        if (!free(append) || op(append).kind != OpKind::kKvAppend) return;
        ValueId state = op(append).outputs[0];
        OpId attention = only_consumer(state, OpKind::kAttention);
        if (!attention.valid()) return;
        std::vector<OpId> ops{append};
        ValueId q = op(attention).inputs[0];
        if (is_output_[q.index()] || consumers_[q.index()].size() != 1) return;
        ValueId hq = trace_projection(q, true, ops);
        ValueId hk = trace_projection(op(append).inputs[0], true, ops);
        ValueId hv = trace_projection(op(append).inputs[1], false, ops);
        if (!hq.valid() || hq != hk || hq != hv) return;
        OpId q_linear = producer_of_linear(q);
        // Query and KV heads must be split together or not at all.
        if (split(append).work.whole() != split(q_linear).work.whole()) return;
        take_norm(hq, 3, ops);
        FusedGroup& group = add(KernelKind::kNormQkvRopeAppend, std::move(ops), split(q_linear));
        group.outputs = {q};
        group.kv_state = state;
    }

    OpId producer_of_linear(ValueId value) const {
        OpId id = producer_[value.index()];
        while (op(id).kind != OpKind::kLinear) id = producer_[op(id).inputs[0].index()];
        return id;
    }

    void fuse_gate_up(OpId gated) {
        if (!free(gated) || op(gated).kind != OpKind::kGatedActivation) return;
        OpId gate = producer_of_kind(op(gated).inputs[0], OpKind::kLinear);
        OpId up = producer_of_kind(op(gated).inputs[1], OpKind::kLinear);
        if (!gate.valid() || !up.valid() || gate == up || op(gate).inputs[0] != op(up).inputs[0])
            return;
        if (split(gate).weight == WeightCut::kColumns || split(up).weight == WeightCut::kColumns)
            return;
        std::vector<OpId> ops{gate, up, gated};
        take_norm(op(gate).inputs[0], 2, ops);
        add(KernelKind::kNormGateUp, std::move(ops), split(gated));
    }

    void fuse_logits(OpId linear) {
        if (!free(linear) || op(linear).kind != OpKind::kLinear) return;
        std::vector<OpId> ops{linear};
        ValueId out = op(linear).outputs[0];
        for (OpId scale = only_consumer(out, OpKind::kScale);
             scale.valid() && (op(scale).as<ScaleAttrs>().softcap == 0 ||
                               split(linear).effect != SplitEffect::kPartial);
             scale = only_consumer(out, OpKind::kScale)) {
            ops.push_back(scale);
            out = op(scale).outputs[0];
        }
        if (!is_output_[out.index()] || graph_.value(out).kind != ValueKind::kLogits) return;
        take_norm(op(linear).inputs[0], 1, ops);
        ValueId in = op(*std::min_element(ops.begin(), ops.end())).inputs[0];
        if (OpId select = producer_of_kind(in, OpKind::kSelectTokens); select.valid())
            ops.push_back(select);
        add(KernelKind::kNormLinear, std::move(ops), split(linear));
    }

    void fuse_linear(OpId linear) {
        if (!free(linear) || op(linear).kind != OpKind::kLinear) return;
        std::vector<OpId> ops{linear};
        ValueId out = op(linear).outputs[0];
        // A soft cap is not linear: it must not meet a part of a sum.
        if (OpId scale = only_consumer(out, OpKind::kScale);
            scale.valid() && op(scale).as<ScaleAttrs>().softcap == 0) {
            ops.push_back(scale);
            out = op(scale).outputs[0];
        }
        OpId sum = only_consumer(out, OpKind::kAdd);
        ValueId residual;
        if (sum.valid() && splits_.values[op(sum).outputs[0].index()].whole() &&
            split(linear).effect != SplitEffect::kSplit &&
            split(linear).effect != SplitEffect::kWhole) {
            residual = op(sum).inputs[0] == out ? op(sum).inputs[1] : op(sum).inputs[0];
            if (residual == out) residual = {};
        }
        FusedGroup& group = add(KernelKind::kLinear, std::move(ops), split(linear));
        if (residual.valid()) {
            taken_[sum.index()] = true;
            group.epilogue = sum;
            group.residual = residual;
            group.partial = out;
            group.outputs = {op(sum).outputs[0]};
            group.last = std::max(group.last, sum);
        }
    }

    static bool takes_epilogue(const FusedGroup& group) {
        switch (group.kernel) {
            case KernelKind::kEmbedding:
            case KernelKind::kNormQkvRopeAppend:
            case KernelKind::kAttention:
            case KernelKind::kKvAppend:
            case KernelKind::kOpaque: return false;
            default: break;
        }
        // What devices add up or put together is no result before that.
        return group.split.effect == SplitEffect::kWhole ||
               group.split.effect == SplitEffect::kSplit;
    }

    // The elementwise operator that alone reads the value, and is divided as the launch that makes
    // it.
    OpId next_of_epilogue(ValueId value, const OpSplit& made) const {
        for (OpKind kind : {OpKind::kScale, OpKind::kAdd, OpKind::kGatedActivation}) {
            OpId id = only_consumer(value, kind);
            if (!id.valid()) continue;
            const OpSplit& own = split(id);
            const bool alike = made.effect == SplitEffect::kWhole
                                   ? own.effect == SplitEffect::kWhole
                                   : own.effect == SplitEffect::kSplit && own.work == made.work;
            return alike ? id : OpId{};
        }
        return {};
    }

    void fuse_epilogue(FusedGroup& group) {
        if (group.kernel == KernelKind::kTensor) return fuse_tensors(group);
        if (!takes_epilogue(group) || group.outputs.size() != 1) return;
        for (OpId next = next_of_epilogue(group.outputs[0], group.split); next.valid();
             next = next_of_epilogue(group.outputs[0], group.split))
            append(group, next);
    }

    // Elementwise operators over tensors, while each alone reads what the one before it makes.
    void fuse_tensors(FusedGroup& group) {
        std::optional<TensorChain> chain = TensorChain::behind(op(group.ops[0]));
        if (!chain) return;
        for (;;) {
            const ValueId value = group.outputs[0];
            const OpId next = only_consumer(value, OpKind::kTensor);
            if (!next.valid() || !chain->join(op(next), value)) return;
            append(group, next);
        }
    }

    void append(FusedGroup& group, OpId next) {
        for (ValueId v : op(next).inputs)
            if (v != group.outputs[0] &&
                std::find(group.inputs.begin(), group.inputs.end(), v) == group.inputs.end())
                group.inputs.push_back(v);
        taken_[next.index()] = true;
        group.ops.push_back(next);
        group.outputs = op(next).outputs;
        group.last = std::max(group.last, next);
    }

    static KernelKind single_kernel(OpKind kind) {
        switch (kind) {
            case OpKind::kEmbedding: return KernelKind::kEmbedding;
            case OpKind::kRmsNorm: return KernelKind::kRmsNorm;
            case OpKind::kLinear: return KernelKind::kLinear;
            case OpKind::kRope: return KernelKind::kRope;
            case OpKind::kKvAppend: return KernelKind::kKvAppend;
            case OpKind::kAttention: return KernelKind::kAttention;
            case OpKind::kGatedActivation: return KernelKind::kGatedActivation;
            case OpKind::kAdd: return KernelKind::kAdd;
            case OpKind::kScale: return KernelKind::kScale;
            case OpKind::kSelectTokens: return KernelKind::kSelectTokens;
            case OpKind::kOpaque: return KernelKind::kOpaque;
            case OpKind::kTensor: return KernelKind::kTensor;
        }
        return KernelKind::kOpaque;
    }

    FusedGroup& add(KernelKind kernel, std::vector<OpId> ops, const OpSplit& split) {
        std::sort(ops.begin(), ops.end());
        FusedGroup group;
        group.kernel = kernel;
        group.split = split;
        group.first = ops.front();
        group.last = ops.back();
        group.layer = op(ops.back()).layer;
        for (OpId id : ops) taken_[id.index()] = true;
        for (OpId id : ops)
            for (ValueId v : op(id).inputs) {
                if (graph_.value(v).kind == ValueKind::kKvState) {
                    group.kv_state = v;
                    continue;
                }
                OpId from = producer_[v.index()];
                bool inside = from.valid() && std::binary_search(ops.begin(), ops.end(), from);
                if (!inside &&
                    std::find(group.inputs.begin(), group.inputs.end(), v) == group.inputs.end())
                    group.inputs.push_back(v);
            }
        for (ValueId v : op(ops.back()).outputs) {
            if (graph_.value(v).kind == ValueKind::kKvState)
                group.kv_state = v;
            else
                group.outputs.push_back(v);
        }
        if (split.effect == SplitEffect::kPartial) group.partial = group.outputs[0];
        group.ops = std::move(ops);
        groups_.push_back(std::move(group));
        return groups_.back();
    }

    const Graph& graph_;
    const GraphSplits& splits_;
    std::vector<OpId> producer_;
    std::vector<std::vector<OpId>> consumers_;
    std::vector<bool> is_output_, taken_;
    std::vector<FusedGroup> groups_;
};

}  // namespace

std::vector<FusedGroup> fuse(const Graph& graph, const GraphSplits& splits) {
    return Fuser(graph, splits).run();
}

std::vector<Unit> find_units(const Graph& graph, const GraphSplits& splits,
                             const std::vector<FusedGroup>& groups) {
    // forbidden[i]: no cut before group i, because a split value or a KV state crosses there.
    std::vector<int> crossing(groups.size() + 1, 0), made_by(graph.values.size(), -1),
        last_use(graph.values.size(), -1);
    std::vector<int> group_of(graph.ops.size(), -1);
    for (size_t g = 0; g < groups.size(); ++g) {
        for (OpId id : groups[g].ops) group_of[id.index()] = static_cast<int>(g);
        if (groups[g].epilogue.valid()) group_of[groups[g].epilogue.index()] = static_cast<int>(g);
    }
    for (size_t i = 0; i < graph.ops.size(); ++i) {
        for (ValueId v : graph.ops[i].outputs) made_by[v.index()] = group_of[i];
        for (ValueId v : graph.ops[i].inputs)
            last_use[v.index()] = std::max(last_use[v.index()], group_of[i]);
    }
    // What a product gathers stays with it: a cut there would move that and the residual stream.
    const auto stays = [&](int group) {
        return is_gathered(groups[group]) && groups[group].split.weight == WeightCut::kNone;
    };
    for (size_t v = 0; v < graph.values.size(); ++v) {
        if (made_by[v] < 0) continue;
        const bool movable = graph.values[v].kind != ValueKind::kKvState &&
                             splits.values[v].whole() && !stays(made_by[v]);
        if (movable) continue;
        for (int g = made_by[v] + 1; g <= last_use[v]; ++g) ++crossing[g];
    }
    // A stage is a contiguous range of operators: everything before a cut has smaller ids than all
    // behind it.
    std::vector<OpId> smallest_behind(groups.size() + 1, OpId(graph.ops.size()));
    for (size_t g = groups.size(); g-- > 0;)
        smallest_behind[g] = std::min(smallest_behind[g + 1], groups[g].first);
    std::vector<Unit> units;
    OpId largest;
    for (size_t g = 0; g < groups.size(); ++g) {
        bool may_cut = crossing[g] == 0 && smallest_behind[g] > largest;
        if (units.empty() || may_cut) units.push_back({static_cast<int>(g), static_cast<int>(g)});
        Unit& unit = units.back();
        unit.end = static_cast<int>(g) + 1;
        for (OpId id : groups[g].ops) {
            int layer = graph.op(id).layer;
            if (layer < 0 || (graph.config.num_layers > 0 && layer >= graph.config.num_layers))
                continue;
            unit.first_layer = unit.first_layer < 0 ? layer : std::min(unit.first_layer, layer);
            unit.last_layer = std::max(unit.last_layer, layer);
        }
        largest = std::max(largest, groups[g].last);
    }
    return units;
}

}  // namespace cleave::planner
