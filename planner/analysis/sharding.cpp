// SPDX-License-Identifier: Apache-2.0
#include "planner/analysis/sharding.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "planner/analysis/storage.h"
#include "planner/plan/foreign_op.h"
#include "runtime/base/errors.h"

namespace cleave::planner {

using namespace importer;

namespace {

// What may be split, and what that does. An operator and axis without a line run whole on every
// device.
// clang-format off
constexpr SplitRule kRules[] = {
    // operator                 split along        weight matrix         output
    {OpKind::kEmbedding,        Axis::kVocabulary, WeightCut::kRows,     SplitEffect::kPartial},
    {OpKind::kLinear,           Axis::kQueryHeads, WeightCut::kRows,     SplitEffect::kSplit},
    {OpKind::kLinear,           Axis::kKvHeads,    WeightCut::kRows,     SplitEffect::kSplit},
    {OpKind::kLinear,           Axis::kColumns,    WeightCut::kRows,     SplitEffect::kSplit},
    {OpKind::kLinear,           Axis::kVocabulary, WeightCut::kRows,     SplitEffect::kSplit},
    {OpKind::kLinear,           Axis::kQueryHeads, WeightCut::kColumns,  SplitEffect::kPartial},
    {OpKind::kLinear,           Axis::kColumns,    WeightCut::kColumns,  SplitEffect::kPartial},
    {OpKind::kRmsNorm,          Axis::kQueryHeads, WeightCut::kNone,     SplitEffect::kSplit},
    {OpKind::kRmsNorm,          Axis::kKvHeads,    WeightCut::kNone,     SplitEffect::kSplit},
    {OpKind::kRope,             Axis::kQueryHeads, WeightCut::kNone,     SplitEffect::kSplit},
    {OpKind::kRope,             Axis::kKvHeads,    WeightCut::kNone,     SplitEffect::kSplit},
    {OpKind::kKvAppend,         Axis::kKvHeads,    WeightCut::kNone,     SplitEffect::kSplit},
    {OpKind::kAttention,        Axis::kQueryHeads, WeightCut::kNone,     SplitEffect::kSplit},
    {OpKind::kGatedActivation,  Axis::kColumns,    WeightCut::kNone,     SplitEffect::kSplit},
    {OpKind::kScale,            Axis::kQueryHeads, WeightCut::kNone,     SplitEffect::kSplit},
    {OpKind::kScale,            Axis::kColumns,    WeightCut::kNone,     SplitEffect::kSplit},
    {OpKind::kScale,            Axis::kVocabulary, WeightCut::kNone,     SplitEffect::kSplit},
    // What a product reads that is summed whole, and makes: see Assignment::gathers_.
    {OpKind::kAttention,        Axis::kQueryHeads, WeightCut::kNone,     SplitEffect::kGathered},
    {OpKind::kGatedActivation,  Axis::kColumns,    WeightCut::kNone,     SplitEffect::kGathered},
    {OpKind::kLinear,           Axis::kColumns,    WeightCut::kRows,     SplitEffect::kGathered},
};
// clang-format on

bool allowed(OpKind kind, Axis axis, WeightCut weight, SplitEffect effect) {
    for (const SplitRule& rule : kRules)
        if (rule.kind == kind && rule.axis == axis && rule.weight == weight &&
            rule.effect == effect)
            return true;
    return false;
}

// What the consumers of a value want of it: nothing yet (nullopt), it whole, or it split.
using Wish = std::optional<Split>;

class Assignment {
public:
    Assignment(const Graph& graph, const Workload& workload)
        : graph_(graph),
          rounds_(workload.compute == ComputeMode::kFast && any_product_rounds(graph, workload)),
          forced_whole_(graph.ops.size(), false) {}

    GraphSplits run() {
        // Each failed forward pass forces at least one more operator whole, so this ends.
        while (true) {
            collect_wishes();
            if (grant()) return std::move(result_);
        }
    }

private:
    void ask(ValueId value, const Split& split) {
        Wish& wish = wishes_[value.index()];
        if (!wish)
            wish = split;
        else if (!(wish->same_units(split) && wish->unit_size == split.unit_size))
            wish = Split{};
    }
    void ask_whole(const Op& op) {
        for (ValueId v : op.inputs) ask(v, Split{});
    }
    // The wish for the only output when it is a split that this operator may have.
    Wish output_wish(const Op& op) const {
        return op.outputs.size() == 1 ? wishes_[op.outputs[0].index()] : Wish(Split{});
    }

    void collect_wishes() {
        wishes_.assign(graph_.values.size(), std::nullopt);
        gathers_.assign(graph_.values.size(), false);
        kv_group_.assign(graph_.values.size(), 0);
        for (const Op& op : graph_.ops)
            if (op.kind == OpKind::kAttention) {
                const auto& a = op.as<AttentionAttrs>();
                kv_group_[op.inputs[1].index()] =
                    std::max<int64_t>(1, a.num_heads / std::max<int64_t>(1, a.num_kv_heads));
            }
        for (ValueId v : graph_.outputs) {
            const Value& value = graph_.value(v);
            if (value.kind == ValueKind::kLogits)
                ask(v, {Axis::kVocabulary, last_dimension(value), 1, 1});
            else
                ask(v, Split{});
        }
        for (size_t i = graph_.ops.size(); i-- > 0;) wish_of(graph_.ops[i], forced_whole_[i]);
    }

    void wish_of(const Op& op, bool forced_whole) {
        Wish wish = output_wish(op);
        bool out_whole = wish && wish->whole();
        if (forced_whole) return ask_whole(op);
        switch (op.kind) {
            case OpKind::kAttention: {
                if (out_whole) return ask_whole(op);
                const auto& a = op.as<AttentionAttrs>();
                int64_t group = kv_group_[op.inputs[1].index()];
                ask(op.inputs[0], {Axis::kQueryHeads, a.num_heads, a.head_dim, group});
                ask(op.inputs[1], {Axis::kKvHeads, a.num_kv_heads, 1, group});
                return;
            }
            case OpKind::kKvAppend: {
                if (out_whole) return ask_whole(op);
                const auto& a = op.as<KvAppendAttrs>();
                int64_t group = std::max<int64_t>(1, kv_group_[op.outputs[0].index()]);
                ask(op.inputs[0], {Axis::kKvHeads, a.num_kv_heads, a.head_dim, group});
                ask(op.inputs[1], {Axis::kKvHeads, a.num_kv_heads, a.v_head_dim, group});
                return;
            }
            case OpKind::kGatedActivation: {
                if (out_whole) return ask_whole(op);
                Split columns{Axis::kColumns, last_dimension(graph_.value(op.outputs[0])), 1, 1};
                for (ValueId v : op.inputs) ask(v, columns);
                return;
            }
            case OpKind::kLinear:
                // A row-parallel matrix takes its input however it comes; a column-parallel one
                // needs it whole.
                if (wish && !wish->whole())
                    ask_whole(op);
                else if (is_summed_whole(op))
                    gathers_[op.inputs[0].index()] = true;
                return;
            case OpKind::kRmsNorm: {
                bool per_head =
                    wish && !wish->whole() && op.as<RmsNormAttrs>().group == wish->unit_size;
                ask(op.inputs[0], per_head ? *wish : Split{});
                return;
            }
            case OpKind::kRope:
            case OpKind::kScale: ask(op.inputs[0], wish.value_or(Split{})); return;
            case OpKind::kTensor: return wish_of_foreign(op, wish);
            default: ask_whole(op);
        }
    }

    // Of its first input; of one column where nothing says more.
    static Split columns_of(const Value& value, int64_t units) {
        const int64_t columns = last_dimension(value);
        if (units < 1 || columns % units != 0) return {};
        return {Axis::kColumns, units, columns / units, 1};
    }

    void wish_of_foreign(const Op& op, const Wish& wish) {
        const std::optional<ForeignOp> foreign = foreign_op(op);
        const bool elementwise = foreign && foreign->split == ForeignSplit::kElementwise;
        for (size_t i = 0; i < op.inputs.size(); ++i) {
            Split split;
            if (elementwise) split = wish.value_or(Split{});
            if (foreign && foreign->split == ForeignSplit::kByInput && i == 0)
                split = columns_of(graph_.value(op.inputs[0]), foreign->split_units);
            ask(op.inputs[i], split);
        }
    }

    // Forward: gives every operator the split its inputs really have. False when one had to be
    // forced whole.
    bool grant() {
        result_.ops.assign(graph_.ops.size(), {});
        result_.values.assign(graph_.values.size(), {});
        for (size_t i = 0; i < graph_.ops.size(); ++i) {
            const Op& op = graph_.ops[i];
            if (forced_whole_[i]) {
                for (ValueId v : op.inputs)
                    if (!result_.values[v.index()].whole()) return force_producer(v);
                continue;
            }
            if (!grant_op(op, result_.ops[i])) {
                forced_whole_[i] = true;
                return false;
            }
        }
        return true;
    }

    // An operator that must run whole got a split input: its producer has to run whole too.
    bool force_producer(ValueId value) {
        for (size_t i = 0; i < graph_.ops.size(); ++i)
            for (ValueId out : graph_.ops[i].outputs)
                if (out == value) {
                    CLEAVE_CHECK(!forced_whole_[i])
                        << graph_.value(value).name << " is split though its producer is not";
                    forced_whole_[i] = true;
                }
        return false;
    }

    bool grant_op(const Op& op, OpSplit& split) {
        const Split in = op.inputs.empty() ? Split{} : result_.values[op.inputs[0].index()];
        if (op.kind == OpKind::kEmbedding) {
            const Weight& table = graph_.weight(op.weights[0]);
            split = {
                {Axis::kVocabulary, table.shape[0], 1, 1}, WeightCut::kRows, SplitEffect::kPartial};
            return true;
        }
        if (op.kind == OpKind::kLinear) return grant_linear(op, in, split);
        if (op.kind == OpKind::kAttention || op.kind == OpKind::kKvAppend ||
            op.kind == OpKind::kGatedActivation)
            return grant_many(op, split);
        if (std::optional<ForeignOp> foreign = foreign_op(op))
            return grant_foreign(op, *foreign, in, split);
        for (size_t k = 1; k < op.inputs.size(); ++k)
            if (!(result_.values[op.inputs[k].index()] == in)) return false;
        if (in.whole()) return true;
        if (op.outputs.size() != 1 ||
            !allowed(op.kind, in.axis, WeightCut::kNone, SplitEffect::kSplit))
            return false;
        split = {in, WeightCut::kNone, SplitEffect::kSplit};
        result_.values[op.outputs[0].index()] = in;
        return true;
    }

    bool grant_foreign(const Op& op, const ForeignOp& foreign, const Split& in, OpSplit& split) {
        const bool elementwise = foreign.split == ForeignSplit::kElementwise;
        const bool summing = foreign.split == ForeignSplit::kByInput;
        for (size_t k = 0; k < op.inputs.size(); ++k) {
            const Split& other = result_.values[op.inputs[k].index()];
            if (elementwise ? !(other == in) : !other.whole() && !(summing && k == 0)) return false;
        }
        const ValueId out = op.outputs[0];
        if (summing && !in.whole()) {
            if (rounds_) return false;
            const Split own = columns_of(graph_.value(op.inputs[0]), foreign.split_units);
            if (own.whole() || in.unit_size % own.unit_size != 0) return false;
            split = {in, WeightCut::kColumns, SplitEffect::kPartial};
        } else if (elementwise && !in.whole()) {
            split = {in, WeightCut::kRows, SplitEffect::kSplit};
            result_.values[out.index()] = in;
        } else if (foreign.split == ForeignSplit::kByOutput) {
            const Wish wish = output_wish(op);
            const Split own = columns_of(graph_.value(out), foreign.split_units);
            if (!wish || wish->whole() || own.whole() || wish->unit_size % own.unit_size != 0 ||
                wish->units * wish->unit_size != last_dimension(graph_.value(out)))
                return true;
            split = {*wish, WeightCut::kRows, SplitEffect::kSplit};
            result_.values[out.index()] = *wish;
        }
        return true;
    }

    // Sums in parts have other last bits, which roundings behind them make large: where some
    // product rounds its input, none is summed in parts.
    bool is_summed_whole(const Op& op) const {
        return rounds_ || graph_.weight(op.weights[0]).quantization.dynamic_activations;
    }

    bool grant_linear(const Op& op, const Split& in, OpSplit& split) {
        Wish wish = output_wish(op);
        if (!in.whole()) {
            if (is_summed_whole(op)) return false;
            if (!allowed(op.kind, in.axis, WeightCut::kColumns, SplitEffect::kPartial))
                return false;
            split = {in, WeightCut::kColumns, SplitEffect::kPartial};
            return true;
        }
        const int64_t features = graph_.weight(op.weights[0]).shape[0];
        if (is_summed_whole(op) && (!wish || wish->whole())) {
            split = {{Axis::kColumns, features, 1, 1}, WeightCut::kRows, SplitEffect::kGathered};
            return true;
        }
        if (!wish || wish->whole() || wish->units * wish->unit_size != features) return true;
        if (!allowed(op.kind, wish->axis, WeightCut::kRows, SplitEffect::kSplit)) return true;
        split = {*wish, WeightCut::kRows, SplitEffect::kSplit};
        result_.values[op.outputs[0].index()] = *wish;
        return true;
    }

    // Operators of several inputs: all split alike (query heads with their KV heads), or all whole.
    bool grant_many(const Op& op, OpSplit& split) {
        size_t num_whole = 0;
        for (ValueId v : op.inputs) num_whole += result_.values[v.index()].whole();
        if (num_whole == op.inputs.size()) return true;
        if (num_whole > 0) return false;
        Split work = result_.values[op.inputs[0].index()];
        if (op.kind == OpKind::kAttention) {
            const auto& a = op.as<AttentionAttrs>();
            if (work.axis != Axis::kQueryHeads ||
                result_.values[op.inputs[1].index()].axis != Axis::kKvHeads)
                return false;
            work.unit_size = a.v_head_dim;
        } else if (op.kind == OpKind::kKvAppend) {
            if (work.axis != Axis::kKvHeads ||
                !work.same_units(result_.values[op.inputs[1].index()]))
                return false;
            work.unit_size = 1;
        } else if (!(work == result_.values[op.inputs[1].index()]) || work.axis != Axis::kColumns) {
            return false;
        }
        if (gathers_[op.outputs[0].index()] &&
            allowed(op.kind, work.axis, WeightCut::kNone, SplitEffect::kGathered)) {
            split = {work, WeightCut::kNone, SplitEffect::kGathered};
            return true;
        }
        split = {work, WeightCut::kNone, SplitEffect::kSplit};
        result_.values[op.outputs[0].index()] = work;
        return true;
    }

    const Graph& graph_;
    const bool rounds_;  // some product rounds its activations
    std::vector<bool> forced_whole_;
    std::vector<Wish> wishes_;
    // By value: a product reads it that is summed whole, as it rounds by the smallest and largest
    // element of all of its input (DynamicQuantizeLinear), or as products round in groups
    // (ComputeMode::kFast). It is gathered where it was made in parts.
    std::vector<bool> gathers_;
    std::vector<int64_t> kv_group_;  // by value: queries of one KV head, for KV states
    GraphSplits result_;
};

}  // namespace

GraphSplits assign_splits(const Graph& graph, const Workload& workload) {
    return Assignment(graph, workload).run();
}

int64_t last_dimension(const importer::Value& value) {
    return value.shape.empty() || !value.shape.back().is_static() ? 0 : value.shape.back().value;
}

std::vector<Range> split_units(int64_t units, int64_t granule, std::span<const int64_t> weights) {
    CLEAVE_CHECK(granule > 0 && !weights.empty())
        << "granule " << granule << " of " << weights.size() << " devices";
    int64_t blocks = (units + granule - 1) / granule;
    int64_t total = std::accumulate(weights.begin(), weights.end(), int64_t{0});
    CLEAVE_CHECK(total > 0) << "no device has weight";
    std::vector<int64_t> count(weights.size()), order(weights.size());
    std::vector<int64_t> remainder(weights.size());
    int64_t left = blocks;
    for (size_t i = 0; i < weights.size(); ++i) {
        auto product = static_cast<__int128>(blocks) * weights[i];
        count[i] = static_cast<int64_t>(product / total);
        remainder[i] = static_cast<int64_t>(product % total);
        left -= count[i];
    }
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return remainder[a] > remainder[b]; });
    for (int64_t i = 0; i < left; ++i) ++count[order[i]];
    std::vector<Range> ranges(weights.size());
    int64_t begin = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
        int64_t end = std::min(units, (begin / granule + count[i]) * granule);
        if (count[i] == 0) end = begin;
        ranges[i] = {begin, end};
        begin = end;
    }
    return ranges;
}

std::vector<Range> ranges_of(const StageShares& shares, const Split& split) {
    if (split.whole()) return std::vector<Range>(shares.count(), Range{0, split.units});
    for (const auto& [known, ranges] : shares.known)
        if (known.same_units(split)) return ranges;
    if (split.axis == Axis::kColumns || split.axis == Axis::kVocabulary) {
        // The largest power of two that still leaves each device about eight blocks balances within
        // an eighth.
        int64_t granule = shares.granule;
        int64_t wanted = split.units / (8 * static_cast<int64_t>(shares.count()));
        while (granule < 64 && granule * 2 <= wanted) granule *= 2;
        return split_units(split.units, granule, shares.weights);
    }
    int64_t group = split.group;
    int64_t query_heads = split.axis == Axis::kQueryHeads ? split.units : split.units * group;
    int64_t granule = std::lcm(shares.whole_groups ? group : 1, shares.head_granule);
    std::vector<Range> ranges = split_units(query_heads, granule, shares.weights);
    if (split.axis == Axis::kKvHeads)
        for (Range& r : ranges)
            r = r.empty() ? Range{r.begin / group, r.begin / group}
                          : Range{r.begin / group, (r.end + group - 1) / group};
    return ranges;
}

}  // namespace cleave::planner
