// SPDX-License-Identifier: Apache-2.0
// The codec of the plan itself: placement, steps, accounts.
#include "planner/file/plan_codec.h"

namespace cleave::planner::codec {

namespace {

// ---- Placement

void put(const Stage& s, pb::Stage* out) {
    put_ids(s.devices, out->mutable_devices());
    out->set_first_op(s.first_op.value);
    out->set_last_op(s.last_op.value);
    out->set_first_layer(s.first_layer);
    out->set_last_layer(s.last_layer);
}
void take(const pb::Stage& in, Stage& s) {
    take_ids(in.devices(), s.devices);
    s.first_op = OpId(in.first_op());
    s.last_op = OpId(in.last_op());
    s.first_layer = in.first_layer();
    s.last_layer = in.last_layer();
}

void put(const Buffer& b, pb::Buffer* out) {
    out->set_device(b.device.value);
    out->set_role(static_cast<uint32_t>(b.role));
    out->set_offset(b.offset);
    out->set_size(b.size);
}
void take(const pb::Buffer& in, Buffer& b) {
    b.device = DeviceId(in.device());
    codec::take(in.role(), BufferRole::kChosenTokens, b.role);
    b.offset = in.offset();
    b.size = in.size();
}

void put(const WeightShard& s, pb::WeightShard* out) {
    out->set_weight(s.weight.value);
    out->set_device(s.device.value);
    codec::put(s.rows, out->mutable_rows());
    codec::put(s.columns, out->mutable_columns());
    out->set_dtype(static_cast<uint32_t>(s.dtype));
    out->set_buffer(s.buffer.value);
}
void take(const pb::WeightShard& in, WeightShard& s) {
    s.weight = WeightId(in.weight());
    s.device = DeviceId(in.device());
    codec::take(in.rows(), s.rows);
    codec::take(in.columns(), s.columns);
    codec::take(in.dtype(), s.dtype);
    s.buffer = BufferId(in.buffer());
}

void put(const RopeShard& s, pb::RopeShard* out) {
    out->set_table(s.table.value);
    out->set_device(s.device.value);
    out->set_buffer(s.buffer.value);
}
void take(const pb::RopeShard& in, RopeShard& s) {
    s = {RopeTableId(in.table()), DeviceId(in.device()), BufferId(in.buffer())};
}

void put(const KvSlab& s, pb::KvSlab* out) {
    out->set_state(s.state.value);
    out->set_device(s.device.value);
    codec::put(s.kv_heads, out->mutable_kv_heads());
    out->set_head_dim(s.head_dim);
    out->set_v_head_dim(s.v_head_dim);
    out->set_buffer(s.buffer.value);
}
void take(const pb::KvSlab& in, KvSlab& s) {
    s.state = ValueId(in.state());
    s.device = DeviceId(in.device());
    codec::take(in.kv_heads(), s.kv_heads);
    s.head_dim = in.head_dim();
    s.v_head_dim = in.v_head_dim();
    s.buffer = BufferId(in.buffer());
}

// ---- Steps

void put(const PlacedValue& p, pb::PlacedValue* out) {
    out->set_value(p.value.value);
    out->set_device(p.device.value);
    for (Range r : p.box) codec::put(r, out->add_box());
    out->set_partial(p.partial);
    out->set_buffer(p.buffer.value);
}
void take(const pb::PlacedValue& in, PlacedValue& p) {
    p.value = ValueId(in.value());
    p.device = DeviceId(in.device());
    for (const pb::Range& r : in.box()) codec::take(r, p.box.emplace_back());
    p.partial = in.partial();
    p.buffer = BufferId(in.buffer());
}

void put(const Amount& a, pb::Amount* out) {
    out->set_constant(a.constant);
    out->set_per_token(a.per_token);
    out->set_per_output(a.per_output);
    out->set_per_key(a.per_key);
}
void take(const pb::Amount& in, Amount& a) {
    a = {in.constant(), in.per_token(), in.per_output(), in.per_key()};
}

void put(const Tile& t, pb::Tile* out) {
    out->set_rows(t.rows);
    out->set_tokens(t.tokens);
    out->set_depth(t.depth);
    out->set_threads(t.threads);
    out->set_splits(t.splits);
    out->set_shared_bytes(t.shared_bytes);
    out->set_main_loop(static_cast<uint32_t>(t.main_loop));
    out->set_stages(t.stages);
}
void take(const pb::Tile& in, Tile& t) {
    t = {in.rows(), in.tokens(), in.depth(), in.threads(), in.splits(), in.shared_bytes()};
    codec::take(in.main_loop(), MainLoop::kWarpgroups, t.main_loop);
    t.stages = in.stages();
}

void put(const Compute& c, pb::Compute* out) {
    out->set_device(c.device.value);
    out->set_kernel(static_cast<uint32_t>(c.kernel));
    put_ids(c.ops, out->mutable_ops());
    put_ids(c.inputs, out->mutable_inputs());
    put_ids(c.outputs, out->mutable_outputs());
    put_ids(c.weights, out->mutable_weights());
    put_ids(c.rope_tables, out->mutable_rope_tables());
    out->set_kv(c.kv.value);
    codec::put(c.heads, out->mutable_heads());
    put(c.tile, out->mutable_tile());
    out->set_scratch(c.scratch.value);
    out->set_activations(static_cast<uint32_t>(c.activations));
    put(c.flops, out->mutable_flops());
    put(c.weight_bytes, out->mutable_weight_bytes());
    put(c.activation_bytes, out->mutable_activation_bytes());
}
void take(const pb::Compute& in, Compute& c) {
    c.device = DeviceId(in.device());
    codec::take(in.kernel(), KernelKind::kTensor, c.kernel);
    take_ids(in.ops(), c.ops);
    take_ids(in.inputs(), c.inputs);
    take_ids(in.outputs(), c.outputs);
    take_ids(in.weights(), c.weights);
    take_ids(in.rope_tables(), c.rope_tables);
    c.kv = KvSlabId(in.kv());
    codec::take(in.heads(), c.heads);
    take(in.tile(), c.tile);
    c.scratch = BufferId(in.scratch());
    codec::take(in.activations(), ActivationPath::kPrepared, c.activations);
    take(in.flops(), c.flops);
    take(in.weight_bytes(), c.weight_bytes);
    take(in.activation_bytes(), c.activation_bytes);
}

void put(const Transfer& t, pb::Transfer* out) {
    out->set_source(t.source.value);
    out->set_destination(t.destination.value);
    out->set_path(static_cast<uint32_t>(t.path));
    put(t.bytes, out->mutable_bytes());
}
void take(const pb::Transfer& in, Transfer& t) {
    t.source = PlacedId(in.source());
    t.destination = PlacedId(in.destination());
    codec::take(in.path(), Path::kVendor, t.path);
    take(in.bytes(), t.bytes);
}

void put(const Collective& c, pb::Collective* out) {
    out->set_op(static_cast<uint32_t>(c.op));
    out->set_path(static_cast<uint32_t>(c.path));
    out->set_two_phase(c.two_phase);
    put_ids(c.group, out->mutable_group());
    put_ids(c.contributions, out->mutable_contributions());
    put_ids(c.epilogue, out->mutable_epilogue());
    put_ids(c.epilogue_inputs, out->mutable_epilogue_inputs());
    put_ids(c.weights, out->mutable_weights());
    put_ids(c.outputs, out->mutable_outputs());
    put(c.bytes, out->mutable_bytes());
}
void take(const pb::Collective& in, Collective& c) {
    codec::take(in.op(), CollectiveOp::kAllGather, c.op);
    codec::take(in.path(), Path::kVendor, c.path);
    c.two_phase = in.two_phase();
    take_ids(in.group(), c.group);
    take_ids(in.contributions(), c.contributions);
    take_ids(in.epilogue(), c.epilogue);
    take_ids(in.epilogue_inputs(), c.epilogue_inputs);
    take_ids(in.weights(), c.weights);
    take_ids(in.outputs(), c.outputs);
    take(in.bytes(), c.bytes);
}

void put(const Step& s, pb::Step* out) {
    if (const Compute* c = s.compute()) put(*c, out->mutable_compute());
    if (const Transfer* t = s.transfer()) put(*t, out->mutable_transfer());
    if (const Collective* c = s.collective()) put(*c, out->mutable_collective());
    out->set_layer(s.layer);
    out->set_stage(s.stage);
    out->set_predicted_ns(s.predicted_ns);
    out->set_start_ns(s.start_ns);
    put(s.link_bytes, out->mutable_link_bytes());
}
void take(const pb::Step& in, Step& s) {
    switch (in.action_case()) {
        case pb::Step::kCompute: take(in.compute(), s.action.emplace<Compute>()); break;
        case pb::Step::kTransfer: take(in.transfer(), s.action.emplace<Transfer>()); break;
        case pb::Step::kCollective: take(in.collective(), s.action.emplace<Collective>()); break;
        case pb::Step::ACTION_NOT_SET: throw UserError("it has a step that does nothing");
    }
    s.layer = in.layer();
    s.stage = in.stage();
    s.predicted_ns = in.predicted_ns();
    s.start_ns = in.start_ns();
    take(in.link_bytes(), s.link_bytes);
}

// ---- Account and explanation

void put(const DeviceMemory& m, pb::DeviceMemory* out) {
    out->set_device(m.device.value);
    out->set_capacity(m.capacity);
    out->set_weights(m.weights);
    out->set_kv(m.kv);
    out->set_activations(m.activations);
    out->set_staging(m.staging);
    out->set_scratch(m.scratch);
    out->set_reserved(m.reserved);
    out->set_collectives(m.collectives);
}
void take(const pb::DeviceMemory& in, DeviceMemory& m) {
    m = {DeviceId(in.device()), in.capacity(), in.weights(),  in.kv(),         in.activations(),
         in.staging(),          in.scratch(),  in.reserved(), in.collectives()};
}

void put(const Prediction& p, pb::Prediction* out) {
    out->set_prefill_ns(p.prefill_ns);
    out->set_decode_ns_per_token(p.decode_ns_per_token);
    out->set_lower_bound_ns(p.lower_bound_ns);
    out->set_objective_ns(p.objective_ns);
    out->mutable_decode_busy_ns()->Assign(p.decode_busy_ns.begin(), p.decode_busy_ns.end());
}
void take(const pb::Prediction& in, Prediction& p) {
    p = {in.prefill_ns(),
         in.decode_ns_per_token(),
         in.lower_bound_ns(),
         in.objective_ns(),
         {in.decode_busy_ns().begin(), in.decode_busy_ns().end()}};
}

void put(const RunnerUp& r, pb::RunnerUp* out) {
    out->set_shape(r.shape);
    out->set_objective_ns(r.objective_ns);
    out->set_why_not(r.why_not);
}
void take(const pb::RunnerUp& in, RunnerUp& r) {
    r = {in.shape(), in.objective_ns(), in.why_not()};
}

void put(const Why& w, pb::Why* out) {
    out->set_binding(w.binding);
    for (const auto& item : w.runners_up) put(item, out->add_runners_up());
    out->mutable_cuts()->Assign(w.cuts.begin(), w.cuts.end());
    out->set_metis_cost_ns(w.metis_cost_ns);
    out->set_topological_cost_ns(w.topological_cost_ns);
    out->set_metis(w.metis);
}
void take(const pb::Why& in, Why& w) {
    w.binding = in.binding();
    for (const auto& item : in.runners_up()) take(item, w.runners_up.emplace_back());
    w.cuts.assign(in.cuts().begin(), in.cuts().end());
    w.metis_cost_ns = in.metis_cost_ns();
    w.topological_cost_ns = in.topological_cost_ns();
    w.metis = in.metis();
}

}  // namespace

void put(const Phase& p, pb::Phase* out) {
    for (const auto& item : p.values) put(item, out->add_values());
    for (const auto& item : p.steps) put(item, out->add_steps());
    put_ids(p.inputs, out->mutable_inputs());
    put_ids(p.outputs, out->mutable_outputs());
}
void take(const pb::Phase& in, Phase& p) {
    for (const auto& item : in.values()) take(item, p.values.emplace_back());
    for (const auto& item : in.steps()) take(item, p.steps.emplace_back());
    take_ids(in.inputs(), p.inputs);
    take_ids(in.outputs(), p.outputs);
}

void put(const Plan& p, pb::Plan* out) {
    out->set_graph_digest(p.graph_digest);
    put(p.graph, out->mutable_graph());
    put(p.machine, out->mutable_machine());
    put(p.workload, out->mutable_workload());
    put(p.options, out->mutable_options());
    for (const auto& item : p.stages) put(item, out->add_stages());
    out->set_output_device(p.output_device.value);
    for (const auto& item : p.buffers) put(item, out->add_buffers());
    for (const auto& item : p.weights) put(item, out->add_weights());
    for (const auto& item : p.rope_tables) put(item, out->add_rope_tables());
    out->set_kv_pool_blocks(p.kv_pool.num_blocks);
    for (const auto& item : p.kv_slabs) put(item, out->add_kv_slabs());
    put(p.prefill, out->mutable_prefill());
    put(p.decode, out->mutable_decode());
    for (const auto& item : p.memory) put(item, out->add_memory());
    put(p.prediction, out->mutable_prediction());
    put(p.why, out->mutable_why());
}
void take(const pb::Plan& in, Plan& p) {
    p.graph_digest = in.graph_digest();
    take(in.graph(), p.graph);
    take(in.machine(), p.machine);
    take(in.workload(), p.workload);
    take(in.options(), p.options);
    for (const auto& item : in.stages()) take(item, p.stages.emplace_back());
    p.output_device = DeviceId(in.output_device());
    for (const auto& item : in.buffers()) take(item, p.buffers.emplace_back());
    for (const auto& item : in.weights()) take(item, p.weights.emplace_back());
    for (const auto& item : in.rope_tables()) take(item, p.rope_tables.emplace_back());
    p.kv_pool.num_blocks = in.kv_pool_blocks();
    for (const auto& item : in.kv_slabs()) take(item, p.kv_slabs.emplace_back());
    take(in.prefill(), p.prefill);
    take(in.decode(), p.decode);
    for (const auto& item : in.memory()) take(item, p.memory.emplace_back());
    take(in.prediction(), p.prediction);
    take(in.why(), p.why);
}

}  // namespace cleave::planner::codec
