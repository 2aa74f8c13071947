// SPDX-License-Identifier: Apache-2.0
#include "codegen/lower/step_reader.h"

#include "runtime/base/errors.h"

namespace cleave::codegen {

using importer::Op;
using importer::OpKind;
using importer::ValueId;

namespace {

std::string name_of(const Op& op) {
    return op.kind == OpKind::kTensor ? importer::onnx_op_type(op)
                                      : std::string(importer::op_kind_name(op.kind));
}

}  // namespace

std::vector<std::string> StepReader::fused() const {
    std::vector<std::string> kinds;
    for (size_t i = 0; i < num_ops(); ++i) kinds.push_back(name_of(op(i)));
    return kinds;
}

std::vector<std::string> StepReader::fused_behind_preparation() const {
    const size_t product = find_first(OpKind::kLinear);
    std::vector<std::string> kinds;
    for (size_t i = 0; i < num_ops(); ++i) {
        const OpKind kind = op(i).kind;
        const bool prepares = kind == OpKind::kRmsNorm || kind == OpKind::kSelectTokens;
        if (i > product || !prepares) kinds.push_back(name_of(op(i)));
    }
    return kinds;
}

const Op* StepReader::find(OpKind kind) const {
    const Op* found = nullptr;
    for (importer::OpId id : compute_.ops) {
        const Op& op = plan_.graph.op(id);
        if (op.kind != kind) continue;
        CLEAVE_CHECK(!found) << op.name << ": two operators of kind "
                             << importer::op_kind_name(kind) << " in a step";
        found = &op;
    }
    return found;
}

const Op& StepReader::only(OpKind kind) const {
    const Op* op = find(kind);
    CLEAVE_CHECK(op) << planner::kernel_kind_name(compute_.kernel) << " step without "
                     << importer::op_kind_name(kind);
    return *op;
}

size_t StepReader::find_first(OpKind kind) const {
    size_t i = 0;
    while (i < num_ops() && op(i).kind != kind) ++i;
    CLEAVE_CHECK(i < num_ops()) << planner::kernel_kind_name(compute_.kernel) << " step without "
                                << importer::op_kind_name(kind);
    return i;
}

const Op& StepReader::opaque() const {
    for (const Op& op : plan_.graph.ops)
        if (op.kind == OpKind::kOpaque && !op.as<importer::OpaqueAttrs>().reason.empty()) return op;
    return op(0);
}

const Op* StepReader::find_producer(ValueId value) const {
    for (importer::OpId id : compute_.ops)
        for (ValueId output : plan_.graph.op(id).outputs)
            if (output == value) return &plan_.graph.op(id);
    return nullptr;
}

const Op& StepReader::producer(ValueId value) const {
    const Op* op = find_producer(value);
    CLEAVE_CHECK(op) << "value " << plan_.graph.value(value).name << " is not made in its step";
    return *op;
}

planner::PlacedId StepReader::find_placed(const std::vector<planner::PlacedId>& ids,
                                          ValueId value) const {
    for (planner::PlacedId id : ids)
        if (placed(id).value == value) return id;
    return {};
}

importer::Range StepReader::columns(ValueId value) const {
    planner::PlacedId id = find_placed(compute_.outputs, value);
    if (!id.valid()) id = find_placed(compute_.inputs, value);
    CLEAVE_CHECK(id.valid()) << "value " << plan_.graph.value(value).name
                             << " is not an operand of its step";
    importer::Range range = placed(id).box.back();
    if (range.end == planner::kWhole) range.end = width(value);
    return range;
}

int64_t StepReader::width(ValueId value) const {
    return plan_.graph.value(value).shape.back().value;
}

View StepReader::view(ValueId input, int64_t first_column) const {
    importer::Range held = columns(input);
    CLEAVE_CHECK(held.begin <= first_column)
        << "value " << plan_.graph.value(input).name << " lacks column " << first_column;
    return {held.size(), first_column - held.begin};
}

RowCount StepReader::rows_of(const Op& op) const {
    const importer::Rows rows = importer::rows_of(plan_.graph.value(op.outputs[0]));
    return rows == importer::Rows::kOutputs ? RowCount::kOutputs : RowCount::kTokens;
}

planner::WeightShardId StepReader::find_weight(const Op& op, size_t i) const {
    if (i >= op.weights.size()) return {};
    for (planner::WeightShardId id : compute_.weights)
        if (plan_.weights.at(id.index()).weight == op.weights[i]) return id;
    return {};
}

const planner::WeightShard& StepReader::weight(const Op& op, size_t i) const {
    planner::WeightShardId id = find_weight(op, i);
    CLEAVE_CHECK(id.valid()) << op.name << " lacks weight " << i << " on its device";
    return plan_.weights[id.index()];
}

WeightFormat StepReader::format(const planner::WeightShard& shard) const {
    const importer::Weight& weight = plan_.graph.weight(shard.weight);
    if (importer::stays_quantized(weight, shard.dtype)) return importer::quantized_format(weight);
    return shard.dtype;
}

const planner::WeightShard* StepReader::bias(const Op& linear) const {
    if (!linear.as<importer::LinearAttrs>().has_bias) return nullptr;
    planner::WeightShardId id = find_weight(linear, 1);
    return id.valid() ? &plan_.weights[id.index()] : nullptr;
}

NormSpec StepReader::norm(const Op& op) const {
    const auto& attrs = op.as<importer::RmsNormAttrs>();
    return {weight(op, 0).dtype, attrs.epsilon, attrs.weight_offset};
}

const planner::KvSlab& StepReader::kv_slab() const {
    CLEAVE_CHECK(compute_.kv.valid())
        << planner::kernel_kind_name(compute_.kernel) << " step without a KV slab";
    return plan_.kv_slabs.at(compute_.kv.index());
}

SlabSpec StepReader::slab() const {
    const planner::KvSlab& slab = kv_slab();
    CLEAVE_CHECK(plan_.workload.kv_dtype) << "the plan's workload has no KV dtype";
    return {slab.head_dim, slab.v_head_dim, slab.kv_heads.size(), slab.kv_heads.begin,
            *plan_.workload.kv_dtype};
}

Arg StepReader::input_arg(ValueId value, std::string name) const {
    planner::PlacedId id = find_placed(compute_.inputs, value);
    CLEAVE_CHECK(id.valid()) << "value " << plan_.graph.value(value).name
                             << " is not an input of its step";
    return value_arg(id, std::move(name));
}

Arg StepReader::output_arg(ValueId value, std::string name) const {
    planner::PlacedId id = find_placed(compute_.outputs, value);
    CLEAVE_CHECK(id.valid()) << "value " << plan_.graph.value(value).name
                             << " is not an output of its step";
    return value_arg(id, std::move(name));
}

Arg StepReader::weight_arg(const Op& op, size_t i, std::string name) const {
    planner::WeightShardId id = find_weight(op, i);
    CLEAVE_CHECK(id.valid()) << op.name << " lacks weight " << i << " on its device";
    return codegen::weight_arg(id, std::move(name));
}

Arg StepReader::rope_arg(const Op& op, std::string name) const {
    importer::RopeTableId table = op.as<importer::RopeAttrs>().table;
    for (planner::RopeShardId id : compute_.rope_tables)
        if (plan_.rope_tables.at(id.index()).table == table)
            return make_arg(ArgKind::kRopeTable, id.value, std::move(name));
    throw InternalError(op.name + " lacks its rope table on its device");
}

void StepReader::add_kv_args(std::vector<Arg>& args) const {
    args.push_back(make_arg(ArgKind::kKv, compute_.kv.value, "kv"));
    args.push_back(immediate_arg(plan_.kv_pool.num_blocks, "num_blocks"));
    args.push_back(batch_arg(BatchField::kBlocks, "blocks"));
    args.push_back(immediate_arg(plan_.workload.blocks_per_slot(), "blocks_per_slot"));
}

}  // namespace cleave::codegen
