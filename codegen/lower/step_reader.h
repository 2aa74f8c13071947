// SPDX-License-Identifier: Apache-2.0
// One Compute step as lowering wants to read it: its operators by kind, its placed values and
// weight shards by the graph's ids, views into wider buffers, and ready arguments. InternalError
// where the plan lacks what an operator needs; a bias that another device adds is simply absent.
#pragma once

#include <string>
#include <vector>

#include "codegen/kernel/program.h"
#include "codegen/kernel/spec.h"
#include "planner/plan/plan.h"

namespace cleave::codegen {

class StepReader {
public:
    StepReader(const planner::Plan& plan, const planner::Phase& phase,
               const planner::Compute& compute, bool is_prefill)
        : plan_(plan), phase_(phase), compute_(compute), is_prefill_(is_prefill) {}

    const planner::Compute& compute() const { return compute_; }
    bool is_prefill() const { return is_prefill_; }
    int64_t context() const { return plan_.workload.context; }
    // Kinds of the operators, in order; ONNX types over tensors.
    std::vector<std::string> fused() const;
    // Those that are left to a product whose activations a launch in front prepares.
    std::vector<std::string> fused_behind_preparation() const;

    size_t num_ops() const { return compute_.ops.size(); }
    const importer::Op& op(size_t i) const { return plan_.graph.op(compute_.ops.at(i)); }
    size_t find_first(importer::OpKind kind) const;  // index of the first of that kind
    const std::string& value_name(importer::ValueId value) const {
        return plan_.graph.value(value).name;
    }
    const importer::Op* find(importer::OpKind kind) const;  // the only one of that kind, or nullptr
    const importer::Op& only(importer::OpKind kind) const;
    const importer::Op& last() const { return op(num_ops() - 1); }
    // Of a step that cannot be computed: its operator, or the one that keeps the whole graph from
    // it.
    const importer::Op& opaque() const;
    const importer::Op* find_producer(importer::ValueId value) const;  // within the step
    const importer::Op& producer(importer::ValueId value) const;

    const planner::PlacedValue& placed(planner::PlacedId id) const {
        return phase_.values.at(id.index());
    }
    importer::Range columns(importer::ValueId value) const;  // of an input or output of the step
    int64_t width(importer::ValueId value) const;            // of the whole value
    View view(importer::ValueId input, int64_t first_column) const;
    RowCount rows_of(const importer::Op& op) const;  // of its output
    bool makes_logits(const importer::Op& op) const {
        return plan_.graph.value(op.outputs[0]).kind == importer::ValueKind::kLogits;
    }
    // Of a launch in this phase, at most.
    int64_t max_tokens() const {
        return is_prefill_ ? plan_.workload.max_tokens() : plan_.workload.batch;
    }

    const planner::WeightShard& weight(const importer::Op& op, size_t i) const;
    WeightFormat format(const planner::WeightShard& shard) const;
    const planner::WeightShard* bias(const importer::Op& linear) const;
    NormSpec norm(const importer::Op& op) const;
    const planner::KvSlab& kv_slab() const;
    SlabSpec slab() const;

    Arg input_arg(importer::ValueId value, std::string name) const;
    Arg output_arg(importer::ValueId value, std::string name) const;
    // What the last operator makes.
    Arg output_arg(std::string name) const {
        return output_arg(last().outputs[0], std::move(name));
    }
    Arg weight_arg(const importer::Op& op, size_t i, std::string name) const;
    Arg rope_arg(const importer::Op& op, std::string name) const;
    // kv, num_blocks, blocks, blocks_per_slot.
    void add_kv_args(std::vector<Arg>& args) const;

private:
    planner::PlacedId find_placed(const std::vector<planner::PlacedId>& ids,
                                  importer::ValueId value) const;
    planner::WeightShardId find_weight(const importer::Op& op, size_t i) const;

    const planner::Plan& plan_;
    const planner::Phase& phase_;
    const planner::Compute& compute_;
    bool is_prefill_;
};

}  // namespace cleave::codegen
