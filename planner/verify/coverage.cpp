// SPDX-License-Identifier: Apache-2.0
// Every operator of the graph, and with it every element of every weight, was executed: once, or as
// replicas where the operator is one that may have them.
#include <algorithm>
#include <map>

#include "planner/plan/foreign_op.h"
#include "planner/verify/report.h"

namespace cleave::planner::verify {
namespace {

using importer::Op;
using importer::OpKind;

// Linear operators whose rows are keys or values: a KV head is on every device that has one of
// its queries.
std::vector<bool> key_value_projections(const Graph& graph) {
    std::map<ValueId, size_t> producer;
    for (size_t i = 0; i < graph.ops.size(); ++i)
        for (ValueId v : graph.ops[i].outputs) producer[v] = i;
    std::vector<bool> result(graph.ops.size());
    for (const Op& append : graph.ops) {
        if (append.kind != OpKind::kKvAppend) continue;
        for (ValueId v : append.inputs) {
            auto found = producer.find(v);
            while (found != producer.end()) {
                const Op& op = graph.ops[found->second];
                if (op.kind == OpKind::kLinear) result[found->second] = true;
                if (op.kind != OpKind::kRope && op.kind != OpKind::kRmsNorm &&
                    op.kind != OpKind::kScale)
                    break;
                found = producer.find(op.inputs[0]);
            }
        }
    }
    return result;
}

// Cheap operators are repeated on each device that needs their result; the others are shared out.
bool may_have_replicas(const Op& op, bool is_key_value) {
    switch (op.kind) {
        case OpKind::kLinear: return is_key_value;
        case OpKind::kAttention:
        case OpKind::kGatedActivation:
        case OpKind::kOpaque:
        case OpKind::kTensor: return false;
        default: return true;
    }
}

// Operators that a stage may compute whole on each of its devices rather than share out, by OpId:
// all of a graph with products of integers, which need all of their input at once, and the
// attention of a layer whose queries or keys are normalised over all heads together (OLMo-2).
std::vector<bool> may_repeat_whole(const Graph& graph) {
    const bool integers =
        std::any_of(graph.weights.begin(), graph.weights.end(),
                    [](const importer::Weight& w) { return w.quantization.dynamic_activations; });
    std::vector<bool> result(graph.ops.size(), integers);
    std::map<ValueId, size_t> producer;
    for (size_t i = 0; i < graph.ops.size(); ++i)
        for (ValueId v : graph.ops[i].outputs) producer[v] = i;
    // The product that a value comes from, through norms and rotations; sets `joined` where one
    // spans the heads.
    const auto product_of = [&](ValueId v, int64_t head_dim, bool& joined) {
        auto found = producer.find(v);
        while (found != producer.end()) {
            const Op& op = graph.ops[found->second];
            if (op.kind == OpKind::kLinear) return found->second;
            if (op.kind == OpKind::kRmsNorm)
                joined = joined || op.as<importer::RmsNormAttrs>().group != head_dim;
            else if (op.kind != OpKind::kRope && op.kind != OpKind::kScale)
                break;
            found = producer.find(op.inputs[0]);
        }
        return graph.ops.size();
    };
    for (size_t i = 0; i < graph.ops.size(); ++i) {
        if (graph.ops[i].kind != OpKind::kAttention) continue;
        const int64_t head_dim = graph.ops[i].as<importer::AttentionAttrs>().head_dim;
        bool joined = false;
        const size_t query = product_of(graph.ops[i].inputs[0], head_dim, joined);
        if (const auto append = producer.find(graph.ops[i].inputs[1]); append != producer.end())
            product_of(graph.ops[append->second].inputs[0], head_dim, joined);
        if (!joined || query == graph.ops.size()) continue;
        result[query] = result[i] = true;
        for (size_t j = 0; j < graph.ops.size(); ++j)
            if (graph.ops[j].kind == OpKind::kLinear &&
                graph.ops[j].inputs[0] == graph.ops[i].outputs[0])
                result[j] = true;
    }
    return result;
}

// Of an operator: the output columns and the summed axis, as the executions count them.
Rectangle whole_of(const Graph& graph, const Op& op) {
    switch (op.kind) {
        case OpKind::kEmbedding: {
            const auto& shape = graph.weight(op.weights[0]).shape;
            return {{0, shape[0]}, {0, shape[1]}};
        }
        case OpKind::kLinear: {
            const auto& shape = graph.weight(op.weights[0]).shape;
            return {{0, shape[1]}, {0, shape[0]}};
        }
        case OpKind::kAttention: return {{0, 1}, {0, op.as<importer::AttentionAttrs>().num_heads}};
        case OpKind::kKvAppend: return {{0, 1}, {0, op.as<importer::KvAppendAttrs>().num_kv_heads}};
        case OpKind::kTensor:
            if (const std::optional<ForeignOp> rule = foreign_op(op))
                return {rule->split == ForeignSplit::kByInput ? whole_columns(graph, op.inputs[0])
                                                              : Range{0, 1},
                        whole_columns(graph, op.outputs[0])};
            return {{0, 1}, {0, 1}};
        case OpKind::kOpaque: return {{0, 1}, {0, 1}};
        default: return {{0, 1}, whole_columns(graph, op.outputs[0])};
    }
}

bool is_summing(const Op& op) {
    const std::optional<ForeignOp> rule = foreign_op(op);
    return op.kind == OpKind::kLinear || op.kind == OpKind::kEmbedding ||
           (rule && rule->split == ForeignSplit::kByInput);
}

void check_op(const Plan& plan, const Op& op, bool is_key_value, bool may_repeat,
              const std::vector<const Execution*>& executions, const char* phase, Report& report) {
    if (executions.empty())
        return report.add("op-missing", "{}: {} is never executed", phase, op.name);
    std::vector<Rectangle> parts;
    for (const Execution* e : executions)
        parts.push_back({is_summing(op) ? e->contraction : Range{0, 1}, e->columns});
    Rectangle whole = whole_of(plan.graph, op);
    if (!cover_whole(parts, whole.rows, whole.columns))
        report.add("op-incomplete", "{}: a part of {} is computed nowhere", phase, op.name);
    const bool replicas = may_have_replicas(op, is_key_value);
    // What a foreign operator may share out it may also repeat, where what reads it leaves no
    // choice.
    const std::optional<ForeignOp> rule = foreign_op(op);
    const bool repeats_whole =
        rule ? rule->split != ForeignSplit::kOnce : op.kind != OpKind::kOpaque && may_repeat;
    const auto is_whole = [&](const Rectangle& r) {
        return r.rows == whole.rows && r.columns == whole.columns;
    };
    for (size_t i = 0; i < parts.size(); ++i)
        for (size_t j = 0; j < i; ++j) {
            bool same_device = executions[i]->device == executions[j]->device;
            const bool whole_twice = repeats_whole && is_whole(parts[i]) && is_whole(parts[j]);
            if (((replicas || whole_twice) && !same_device) ||
                !overlaps(parts[i].rows, parts[j].rows) ||
                !overlaps(parts[i].columns, parts[j].columns))
                continue;
            report.add("computed-once", "{}: steps {} and {} both compute columns {} of {}", phase,
                       executions[j]->step, executions[i]->step, range_text(parts[i].columns),
                       op.name);
        }
}

}  // namespace

void check_coverage(const Plan& plan, bool is_prefill, const PhaseTrace& trace, Report& report) {
    const char* phase = is_prefill ? "prefill" : "decode";
    std::vector<std::vector<const Execution*>> executions(plan.graph.ops.size());
    for (const Execution& e : trace.executions) executions[e.op.index()].push_back(&e);
    std::vector<bool> key_value = key_value_projections(plan.graph);
    std::vector<bool> repeatable = may_repeat_whole(plan.graph);
    for (size_t i = 0; i < plan.graph.ops.size(); ++i)
        check_op(plan, plan.graph.ops[i], key_value[i], repeatable[i], executions[i], phase,
                 report);
    for (size_t i = 0; i < plan.kv_slabs.size(); ++i) {
        const KvSlab& s = plan.kv_slabs[i];
        if (!trace.appended[i].covers(s.kv_heads))
            report.add("kv-append", "{}: not all of heads {} of {} are appended on {}", phase,
                       range_text(s.kv_heads), plan.graph.value(s.state).name,
                       plan.machine.device(s.device).name);
    }
}

void check_phases_agree(const Plan& plan, const PhaseTrace& prefill, const PhaseTrace& decode,
                        Report& report) {
    for (size_t i = 0; i < plan.kv_slabs.size(); ++i)
        if (prefill.appended[i] != decode.appended[i])
            report.add("kv-append", "prefill and decode append different heads of {} on {}",
                       plan.graph.value(plan.kv_slabs[i].state).name,
                       plan.machine.device(plan.kv_slabs[i].device).name);
    for (size_t i = 0; i < plan.weights.size(); ++i)
        if (!prefill.weights_used[i] && !decode.weights_used[i])
            report.add("weight-unused", "{} on {} is used by no step",
                       plan.graph.weight(plan.weights[i].weight).name,
                       plan.machine.device(plan.weights[i].device).name);
    for (size_t i = 0; i < plan.rope_tables.size(); ++i)
        if (!prefill.ropes_used[i] && !decode.ropes_used[i])
            report.add("rope-unused", "a rope table on {} is used by no step",
                       plan.machine.device(plan.rope_tables[i].device).name);
}

}  // namespace cleave::planner::verify
