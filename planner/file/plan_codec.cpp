// SPDX-License-Identifier: Apache-2.0
#include "planner/file/plan_codec.h"

#include <algorithm>

#include "importer/weights/formats.h"
#include "planner/file/fields.h"

namespace cleave::planner::codec {

namespace pb = cleave::plan::v1;
using namespace importer;

template <>
constexpr auto kLast<DType> = kLastDType;
template <>
constexpr auto kLast<Packing> = Packing::kAwq;
template <>
constexpr auto kLast<GgufType> = kLastGgufType;
template <>
constexpr auto kLast<ValueKind> = ValueKind::kTensor;
template <>
constexpr auto kLast<Activation> = kLastActivation;
template <>
constexpr auto kLast<OpKind> = OpKind::kTensor;
template <>
constexpr auto kLast<DeviceKind> = kDeviceKinds.back();
template <>
constexpr auto kLast<LinkKind> = kLinkKinds.back();
template <>
constexpr auto kLast<Objective> = static_cast<Objective>(kObjectives.size() - 1);
template <>
constexpr auto kLast<ComputeMode> = ComputeMode::kFast;
template <>
constexpr auto kLast<BufferRole> = BufferRole::kArrivals;
template <>
constexpr auto kLast<KernelKind> = KernelKind::kTensor;
template <>
constexpr auto kLast<MainLoop> = MainLoop::kWarpgroups;
template <>
constexpr auto kLast<ActivationPath> = ActivationPath::kPrepared;
template <>
constexpr auto kLast<Path> = Path::kVendor;
template <>
constexpr auto kLast<CollectiveOp> = CollectiveOp::kAllGather;
template <>
constexpr auto kLast<SumForm> = SumForm::kHierarchical;

FIELDS_AS(put_fields, take_fields, Range, Range, begin)
static void put(const Range& range, pb::Range* out) {
    put_fields(range, out);
    out->set_end(range.end);
}
static void take(const pb::Range& in, Range& range) {
    take_fields(in, range);
    if (in.end() == kWhole)
        range.end = kWhole;
    else
        take(in.end(), range.end);
}

// ---- The graph

FIELDS(SourceFile, SourceFile, path, size, present)
FIELDS(DataRef, DataRef, file, blob, offset, length)
FIELDS(Quantization, Quantization, block, axis, scale_dtype, scales, scales_transposed, scale_count,
       zero_points, zero_point_dtype, dynamic_activations, rounded_from, zero_offset, scale_rows,
       zero_points_in_words)
FIELDS_AS(put_fields, take_fields, Weight, Weight, name, shape, dtype, packing, data, source_shape,
          transposed, rows, columns, quantization, initializers, gguf)
static void put(const Weight& w, pb::Weight* out) {
    put_fields(w, out);
    const QuantizedType* type = find_quantized_type(w.dtype);
    if (w.packing != Packing::kDense && type) {
        out->mutable_quantization()->set_bits(type->bits());
        out->mutable_quantization()->set_is_signed(type->is_signed() &&
                                                   !w.quantization.rounded_from);
    }
}
static void take(const pb::Weight& in, Weight& w) { take_fields(in, w); }
FIELDS(RopeTable, RopeTable, frequencies, magnitude, cos, sin, rotary_dim, max_positions, name)
FIELDS(Dim, Dim, value, symbol)
FIELDS(Value, Value, name, kind, shape, dtype)

FIELDS(EmbeddingAttrs, EmbeddingAttrs, scale)
FIELDS(RmsNormAttrs, RmsNormAttrs, epsilon, weight_offset, group)
FIELDS(LinearAttrs, LinearAttrs, has_bias)
FIELDS(RopeAttrs, RopeAttrs, num_heads, head_dim, rotary_dim, interleaved, table)
FIELDS(KvAppendAttrs, KvAppendAttrs, num_kv_heads, head_dim, v_head_dim)
FIELDS(AttentionAttrs, AttentionAttrs, num_heads, num_kv_heads, head_dim, v_head_dim, scale, window,
       softcap, causal)
FIELDS(GatedActivationAttrs, GatedActivationAttrs, activation)
FIELDS(ScaleAttrs, ScaleAttrs, factor, softcap)
FIELDS(OpaqueAttrs, OpaqueAttrs, domain, op_type, flops, bytes, reason)
FIELDS(TensorOperand, TensorOperand, name, index, dtype, shape)
FIELDS_AS(put_fields, take_fields, TensorAttribute, TensorAttribute, name, reals)
static void put(const TensorAttribute& attribute, pb::TensorAttribute* out) {
    put_fields(attribute, out);
    out->mutable_integers()->Assign(attribute.integers.begin(), attribute.integers.end());
}
// Any number: ONNX has the largest as the end of a Slice.
static void take(const pb::TensorAttribute& in, TensorAttribute& attribute) {
    take_fields(in, attribute);
    attribute.integers.assign(in.integers().begin(), in.integers().end());
}
FIELDS(TensorAttrs, TensorAttrs, op_type, operands, results, attributes, flops)

static void put(const OpAttrs& attrs, pb::Op* out) {
    const auto put_one = [&](const auto& a) {
        using Attrs = std::remove_cvref_t<decltype(a)>;
        if constexpr (std::is_same_v<Attrs, EmbeddingAttrs>) put(a, out->mutable_embedding());
        if constexpr (std::is_same_v<Attrs, RmsNormAttrs>) put(a, out->mutable_rms_norm());
        if constexpr (std::is_same_v<Attrs, LinearAttrs>) put(a, out->mutable_linear());
        if constexpr (std::is_same_v<Attrs, RopeAttrs>) put(a, out->mutable_rope());
        if constexpr (std::is_same_v<Attrs, KvAppendAttrs>) put(a, out->mutable_kv_append());
        if constexpr (std::is_same_v<Attrs, AttentionAttrs>) put(a, out->mutable_attention());
        if constexpr (std::is_same_v<Attrs, GatedActivationAttrs>)
            put(a, out->mutable_gated_activation());
        if constexpr (std::is_same_v<Attrs, AddAttrs>) out->mutable_add();
        if constexpr (std::is_same_v<Attrs, ScaleAttrs>) put(a, out->mutable_scale());
        if constexpr (std::is_same_v<Attrs, SelectTokensAttrs>) out->mutable_select_tokens();
        if constexpr (std::is_same_v<Attrs, OpaqueAttrs>) put(a, out->mutable_opaque());
        if constexpr (std::is_same_v<Attrs, TensorAttrs>) put(a, out->mutable_tensor());
    };
    std::visit(put_one, attrs);
}
static void take(const pb::Op& in, OpAttrs& attrs) {
    switch (in.attrs_case()) {
        case pb::Op::kEmbedding: return take(in.embedding(), attrs.emplace<EmbeddingAttrs>());
        case pb::Op::kRmsNorm: return take(in.rms_norm(), attrs.emplace<RmsNormAttrs>());
        case pb::Op::kLinear: return take(in.linear(), attrs.emplace<LinearAttrs>());
        case pb::Op::kRope: return take(in.rope(), attrs.emplace<RopeAttrs>());
        case pb::Op::kKvAppend: return take(in.kv_append(), attrs.emplace<KvAppendAttrs>());
        case pb::Op::kAttention: return take(in.attention(), attrs.emplace<AttentionAttrs>());
        case pb::Op::kGatedActivation:
            return take(in.gated_activation(), attrs.emplace<GatedActivationAttrs>());
        case pb::Op::kAdd: attrs.emplace<AddAttrs>(); return;
        case pb::Op::kScale: return take(in.scale(), attrs.emplace<ScaleAttrs>());
        case pb::Op::kSelectTokens: attrs.emplace<SelectTokensAttrs>(); return;
        case pb::Op::kOpaque: return take(in.opaque(), attrs.emplace<OpaqueAttrs>());
        case pb::Op::kTensor: return take(in.tensor(), attrs.emplace<TensorAttrs>());
        case pb::Op::ATTRS_NOT_SET: break;
    }
    throw UserError("operator {} has no attributes", in.name());
}
FIELDS_AS(put_fields, take_fields, Op, Op, kind, name, layer, inputs, outputs, weights, onnx_nodes)
static void put(const Op& op, pb::Op* out) {
    put_fields(op, out);
    put(op.attrs, out);
}
static void take(const pb::Op& in, Op& op) {
    take_fields(in, op);
    take(in, op.attrs);
}

FIELDS(ModelConfig, ModelConfig, model_type, vocab_size, hidden_size, intermediate_size, num_layers,
       num_heads, num_kv_heads, head_dim, max_positions, rms_norm_eps, rope_theta, tied_embeddings)
FIELDS(Interface, Interface, has_past, has_position_ids, has_attention_mask, assumes_right_padding)
FIELDS_AS(put_fields, take_fields, Graph, Graph, name, path, exporter, opset, config, interface,
          dtype, ops, values, weights, rope_tables, files, inputs, outputs, notes)
static void put(const Graph& g, pb::Graph* out) {
    put_fields(g, out);
    for (const auto& blob : g.blobs) out->add_blobs(blob.data(), blob.size());
}
static void take(const pb::Graph& in, Graph& g) {
    take_fields(in, g);
    for (const std::string& blob : in.blobs()) {
        const auto* bytes = reinterpret_cast<const std::byte*>(blob.data());
        g.blobs.emplace_back(bytes, bytes + blob.size());
    }
}

// ---- What a plan was made for

using Grid = decltype(DeviceLimits::max_grid);
static void put(const Grid& grid, google::protobuf::RepeatedField<int64_t>* out) {
    out->Assign(grid.begin(), grid.end());
}
// A plan of before there were such limits has the usual ones.
static void take(const google::protobuf::RepeatedField<int64_t>& in, Grid& grid) {
    if (in.size() == static_cast<int>(grid.size())) std::ranges::copy(in, grid.begin());
}
FIELDS(DeviceLimits, DeviceLimits, shared_memory_per_block, registers_per_block,
       max_threads_per_block, warp_width, num_compute_units, max_grid)
FIELDS(MeasuredRates, MeasuredRates, bandwidth, bandwidth_alone, widening, cache_bytes,
       cache_bandwidth, flops_f32, flops_narrow, attention_bandwidth, attention_flops, launch_ns,
       launch_alone_ns)
FIELDS(DeviceInfo, Device, name, kind, arch, model, host, identity, pci, collectives,
       collectives_bytes, index, memory_bytes, reserved_bytes, memory_bandwidth, memory_domain,
       flops_f32, flops_f16, flops_f8, flops_int8, launch_overhead_ns, limits, measured,
       price_micros, host_cores)
FIELDS(Link, Link, from, to, kind, bandwidth, latency_ns, domain, exchange_bandwidth,
       exchange_latency_ns, peer_access)
FIELDS(BandwidthDomain, BandwidthDomain, name, bandwidth)
FIELDS(Machine, Machine, name, devices, links, domains, fabric, sum_skew_ns, network_measured)
FIELDS(Workload, Workload, batch, prompt_tokens, context, kv_tokens, prefill_chunk, all_logits,
       dtype, kv_dtype, activation_dtype, compute)
FIELDS(Pin, Pin, what, device)
FIELDS(PlanOptions, PlanOptions, tensor_parallel, pipeline_stages, objective, use_metis, seed, pins,
       replicas, most_users, max_ttft_ns, max_tpot_ns, whole_layers)

// ---- Placement

FIELDS(Stage, Stage, devices, first_op, last_op, first_layer, last_layer)
FIELDS(Buffer, Buffer, device, role, offset, size)
FIELDS(WeightShard, WeightShard, weight, device, rows, columns, dtype, buffer)
FIELDS(RopeShard, RopeShard, table, device, buffer)
FIELDS(KvSlab, KvSlab, state, device, kv_heads, head_dim, v_head_dim, buffer)

// ---- Steps

FIELDS(PlacedValue, PlacedValue, value, device, box, partial, buffer)
FIELDS(Amount, Amount, constant, per_token, per_output, per_key)
FIELDS(Tile, Tile, rows, tokens, depth, threads, splits, shared_bytes, main_loop, stages)
FIELDS(NarrowTile, NarrowTile, tokens, tile)
FIELDS(Compute, Compute, device, kernel, ops, inputs, outputs, weights, rope_tables, kv, heads,
       tile, narrow, scratch, activations, flops, weight_bytes, activation_bytes)
FIELDS(Transfer, Transfer, source, destination, path, bytes)
FIELDS(Collective, Collective, op, path, two_phase, group, contributions, epilogue, epilogue_inputs,
       weights, outputs, bytes, by_library)
FIELDS_AS(put_fields, take_fields, Step, Step, layer, stage, predicted_ns, start_ns, link_bytes)
static void put(const Step& s, pb::Step* out) {
    if (const Compute* c = s.compute()) put(*c, out->mutable_compute());
    if (const Transfer* t = s.transfer()) put(*t, out->mutable_transfer());
    if (const Collective* c = s.collective()) put(*c, out->mutable_collective());
    put_fields(s, out);
}
static void take(const pb::Step& in, Step& s) {
    switch (in.action_case()) {
        case pb::Step::kCompute: take(in.compute(), s.action.emplace<Compute>()); break;
        case pb::Step::kTransfer: take(in.transfer(), s.action.emplace<Transfer>()); break;
        case pb::Step::kCollective: take(in.collective(), s.action.emplace<Collective>()); break;
        case pb::Step::ACTION_NOT_SET: throw UserError("it has a step that does nothing");
    }
    take_fields(in, s);
}
FIELDS(Phase, Phase, values, steps, inputs, outputs)

// ---- Account and explanation

FIELDS(DeviceMemory, DeviceMemory, device, capacity, weights, kv, activations, staging, scratch,
       reserved, collectives)
FIELDS(Serving, Serving, users, groups, tpot_ns, ttft_ns)
FIELDS(PassPair, PassPair, prefill_ns, decode_ns)
FIELDS(Prediction, Prediction, prefill_ns, decode_ns_per_token, lower_bound_ns, objective_ns,
       decode_busy_ns, serving, one_pcie_link)
FIELDS(RunnerUp, RunnerUp, shape, objective_ns, why_not)
FIELDS(Why, Why, binding, runners_up, cuts, metis_cost_ns, topological_cost_ns, metis)

FIELDS_AS(put_fields, take_fields, Plan, Plan, graph_digest, graph, machine, workload, options,
          stages, output_device, buffers, weights, rope_tables, kv_slabs, prefill, decode, memory,
          prediction, why, copies)
void put(const Plan& p, pb::Plan* out) {
    put_fields(p, out);
    out->set_kv_pool_blocks(p.kv_pool.num_blocks);
    for (const Plan& other : p.others) {
        pb::Plan* made = out->add_others();
        put(other, made);
        made->clear_graph();
    }
}
void take(const pb::Plan& in, Plan& p) {
    take_fields(in, p);
    p.kv_pool.num_blocks = in.kv_pool_blocks();
    for (const pb::Plan& other : in.others()) {
        if (!other.others().empty())
            throw UserError("a replica of another make has replicas of other makes");
        Plan& made = p.others.emplace_back();
        take(other, made);
        made.graph = p.graph;
    }
}

}  // namespace cleave::planner::codec
