// SPDX-License-Identifier: Apache-2.0
#include "tests/planner/support/hand_plan.h"

#include <algorithm>
#include <array>
#include <map>

#include "planner/cost/peer_exchange.h"
#include "planner/plan/plan_queries.h"
#include "runtime/base/rounding.h"

namespace cleave::test {

using namespace planner;

namespace {

Range share(int64_t units, size_t part, size_t parts) {
    auto at = [&](size_t i) {
        return static_cast<int64_t>(i) * units / static_cast<int64_t>(parts);
    };
    return {at(part), at(part + 1)};
}
Range scaled(Range r, int64_t factor) { return {r.begin * factor, r.end * factor}; }

// Lays out one phase after the other; what is permanent is made once, on first use.
class HandPlanner {
public:
    HandPlanner(const std::vector<std::vector<int>>& stages, const TinyShape& shape);
    Plan run();

private:
    using Held = std::map<DeviceId, PlacedId>;

    BufferId buffer(DeviceId device, BufferRole role, int64_t size);
    void departures();
    WeightShardId weight(DeviceId device, WeightId id, Range rows, Range columns);
    RopeShardId rope(DeviceId device);
    KvSlabId slab(DeviceId device, ValueId state, Range heads);
    PlacedId place(ValueId value, DeviceId device, Range columns, bool partial = false);
    Compute& compute(DeviceId device, KernelKind kernel, std::vector<OpId> ops);
    void all_reduce(const std::vector<PlacedId>& parts, const std::vector<DeviceId>& group,
                    std::vector<OpId> epilogue, Held& x);

    void lay_phase(Phase& phase);
    void embed(Held& x);
    void attention(int layer, Held& x);
    void mlp(int layer, Held& x);
    void send(Held& x, const std::vector<DeviceId>& to);
    void head(Held& x);
    void tiles();
    void account();
    OpId op(int layer, int index) const { return OpId(1 + layer * 16 + index); }
    ValueId out(OpId id) const { return plan_.graph.op(id).outputs[0]; }
    WeightId first_weight(OpId id) const { return plan_.graph.op(id).weights[0]; }
    const std::vector<DeviceId>& devices() const {
        return plan_.stages[static_cast<size_t>(stage_)].devices;
    }

    TinyShape s_;
    Plan plan_;
    Phase* phase_ = nullptr;
    int stage_ = 0, layer_ = -1;
    std::map<std::pair<DeviceId, Arena>, int64_t> ends_;
    std::map<std::array<int64_t, 6>, WeightShardId> weights_;
    std::map<DeviceId, RopeShardId> ropes_;
    std::map<std::pair<DeviceId, ValueId>, KvSlabId> slabs_;
};

HandPlanner::HandPlanner(const std::vector<std::vector<int>>& stages, const TinyShape& shape)
    : s_(shape) {
    plan_.graph = tiny_graph(shape);
    plan_.graph_digest = importer::graph_digest(plan_.graph);
    int num_devices = 0;
    for (size_t i = 0; i < stages.size(); ++i) {
        Stage stage;
        for (int d : stages[i]) {
            stage.devices.push_back(DeviceId(d));
            num_devices = std::max(num_devices, d + 1);
        }
        Range layers = share(s_.layers, i, stages.size());
        stage.first_layer = static_cast<int>(layers.begin);
        stage.last_layer = static_cast<int>(layers.end) - 1;
        stage.first_op = i == 0 ? OpId(0) : op(stage.first_layer, 0);
        stage.last_op =
            i + 1 == stages.size() ? OpId(plan_.graph.ops.size() - 1) : op(stage.last_layer, 15);
        plan_.stages.push_back(stage);
    }
    plan_.machine = tiny_machine(num_devices);
    plan_.workload = {.batch = 2,
                      .prompt_tokens = 8,
                      .context = 32,
                      .prefill_chunk = 16,
                      .kv_dtype = DType::kF32};
    plan_.output_device = plan_.stages.back().devices.front();
}

BufferId HandPlanner::buffer(DeviceId device, BufferRole role, int64_t size) {
    int64_t& end = ends_[{device, arena_of(role)}];
    plan_.buffers.push_back({device, role, end, size});
    end += round_up(size, 256);
    return BufferId(plan_.buffers.size() - 1);
}

WeightShardId HandPlanner::weight(DeviceId device, WeightId id, Range rows, Range columns) {
    auto [found, added] = weights_.try_emplace(
        {device.value, id.value, rows.begin, rows.end, columns.begin, columns.end});
    if (!added) return found->second;
    const importer::Weight& w = plan_.graph.weight(id);
    int64_t elements = rows.size() * (w.shape.size() > 1 ? columns.size() : 1);
    plan_.weights.push_back({id, device, rows, columns, DType::kF32,
                             buffer(device, BufferRole::kConstant, elements * 4)});
    return found->second = WeightShardId(plan_.weights.size() - 1);
}

RopeShardId HandPlanner::rope(DeviceId device) {
    auto [found, added] = ropes_.try_emplace(device);
    if (!added) return found->second;
    BufferId b = buffer(device, BufferRole::kConstant, plan_.workload.context * s_.head_dim * 4);
    plan_.rope_tables.push_back({RopeTableId(0), device, b});
    return found->second = RopeShardId(plan_.rope_tables.size() - 1);
}

KvSlabId HandPlanner::slab(DeviceId device, ValueId state, Range heads) {
    auto [found, added] = slabs_.try_emplace({device, state});
    if (!added) return found->second;
    plan_.kv_pool.num_blocks = plan_.workload.pool_blocks();
    int64_t bytes = heads.size() * plan_.kv_pool.num_blocks * kKvBlock * 2 * s_.head_dim * 4;
    BufferId b = buffer(device, BufferRole::kKvSlab, bytes);
    plan_.kv_slabs.push_back({state, device, heads, s_.head_dim, s_.head_dim, b});
    return found->second = KvSlabId(plan_.kv_slabs.size() - 1);
}

PlacedId HandPlanner::place(ValueId value, DeviceId device, Range columns, bool partial) {
    const importer::Value& v = plan_.graph.value(value);
    bool ids = v.kind == importer::ValueKind::kTokenIds;
    Box box{{0, kWhole}};
    if (!ids) box.push_back(columns);
    int64_t rows =
        rows_of(v) == Rows::kOutputs ? plan_.workload.max_outputs() : plan_.workload.max_tokens();
    BufferId b = buffer(device, ids ? BufferRole::kInput : BufferRole::kActivations,
                        rows * 4 * (ids ? 1 : columns.size()));
    phase_->values.push_back({value, device, box, partial, b});
    return PlacedId(phase_->values.size() - 1);
}

Compute& HandPlanner::compute(DeviceId device, KernelKind kernel, std::vector<OpId> ops) {
    Step step{.action = Compute{.device = device, .kernel = kernel, .ops = std::move(ops)},
              .layer = layer_,
              .stage = stage_,
              .predicted_ns = 1000};
    phase_->steps.push_back(std::move(step));
    return std::get<Compute>(phase_->steps.back().action);
}

// x becomes the sum (plus the residual x, with an epilogue) on every device of the group.
void HandPlanner::all_reduce(const std::vector<PlacedId>& parts, const std::vector<DeviceId>& group,
                             std::vector<OpId> epilogue, Held& x) {
    Collective c{.group = group, .contributions = parts, .epilogue = epilogue};
    ValueId value = phase_->values[parts[0].index()].value;
    c.bytes.per_token = s_.hidden * 4;
    Held result;
    for (DeviceId d : group) {
        if (!epilogue.empty()) c.epilogue_inputs.push_back(x.at(d));
        result[d] = place(epilogue.empty() ? value : out(epilogue[0]), d, {0, s_.hidden});
        c.outputs.push_back(result[d]);
    }
    int64_t link = 2 * (static_cast<int64_t>(group.size()) - 1) * s_.hidden * 4;
    phase_->steps.push_back({.action = std::move(c),
                             .layer = layer_,
                             .stage = stage_,
                             .predicted_ns = 3000,
                             .link_bytes = {.per_token = link}});
    x = result;
}

void HandPlanner::embed(Held& x) {
    std::vector<PlacedId> parts;
    const bool split = devices().size() > 1;
    for (size_t i = 0; i < devices().size(); ++i) {
        DeviceId d = devices()[i];
        Range rows = share(s_.vocab, i, devices().size());
        PlacedId ids = place(ValueId(0), d, {});
        phase_->inputs.push_back(ids);
        PlacedId y = place(out(OpId(0)), d, {0, s_.hidden}, split);
        WeightShardId w = weight(d, first_weight(OpId(0)), rows, {0, s_.hidden});
        Compute& c = compute(d, KernelKind::kEmbedding, {OpId(0)});
        c.inputs = {ids};
        c.outputs = {y};
        c.weights = {w};
        x[d] = y;
        parts.push_back(y);
    }
    if (split) all_reduce(parts, devices(), {}, x);
}

void HandPlanner::attention(int layer, Held& x) {
    const auto& group = devices();
    const int64_t d = s_.head_dim, queries_per_kv = s_.heads / s_.kv_heads;
    const bool split = group.size() > 1;
    std::vector<PlacedId> parts;
    for (size_t i = 0; i < group.size(); ++i) {
        Range heads = share(s_.heads, i, group.size());
        if (heads.empty()) continue;
        Range kv{heads.begin / queries_per_kv, ceil_div(heads.end, queries_per_kv)};
        DeviceId device = group[i];
        PlacedId q = place(out(op(layer, 4)), device, scaled(heads, d));
        KvSlabId s = slab(device, out(op(layer, 6)), kv);
        Compute qkv{.device = device, .kernel = KernelKind::kNormQkvRopeAppend};
        for (int j = 0; j < 7; ++j) qkv.ops.push_back(op(layer, j));
        qkv.inputs = {x.at(device)};
        qkv.outputs = {q};
        qkv.weights = {weight(device, first_weight(op(layer, 0)), {0, s_.hidden}, {}),
                       weight(device, first_weight(op(layer, 1)), scaled(heads, d), {0, s_.hidden}),
                       weight(device, first_weight(op(layer, 2)), scaled(kv, d), {0, s_.hidden}),
                       weight(device, first_weight(op(layer, 3)), scaled(kv, d), {0, s_.hidden})};
        qkv.rope_tables = {rope(device)};
        qkv.kv = s;
        qkv.heads = heads;
        compute(device, qkv.kernel, {}) = qkv;
        PlacedId a = place(out(op(layer, 7)), device, scaled(heads, d));
        Compute& att = compute(device, KernelKind::kAttention, {op(layer, 7)});
        att.inputs = {q};
        att.outputs = {a};
        att.kv = s;
        att.heads = heads;
        PlacedId y = place(out(op(layer, split ? 8 : 9)), device, {0, s_.hidden}, split);
        Compute o{.device = device,
                  .kernel = KernelKind::kLinear,
                  .ops = {op(layer, 8)},
                  .inputs = {a},
                  .outputs = {y}};
        o.weights = {weight(device, first_weight(op(layer, 8)), {0, s_.hidden}, scaled(heads, d))};
        if (s_.o_bias && parts.empty())
            o.weights.push_back(
                weight(device, plan_.graph.op(op(layer, 8)).weights[1], {0, s_.hidden}, {}));
        if (!split) {
            o.ops.push_back(op(layer, 9));
            o.inputs.push_back(x.at(device));
            x[device] = y;
        }
        compute(device, o.kernel, {}) = o;
        parts.push_back(y);
    }
    if (split) all_reduce(parts, group, {op(layer, 9)}, x);
}

void HandPlanner::mlp(int layer, Held& x) {
    const auto& group = devices();
    const bool split = group.size() > 1;
    std::vector<PlacedId> parts;
    for (size_t i = 0; i < group.size(); ++i) {
        Range columns = share(s_.intermediate, i, group.size());
        DeviceId device = group[i];
        PlacedId m = place(out(op(layer, 13)), device, columns);
        Compute gate{.device = device, .kernel = KernelKind::kNormGateUp};
        for (int j = 10; j < 14; ++j) gate.ops.push_back(op(layer, j));
        gate.inputs = {x.at(device)};
        gate.outputs = {m};
        gate.weights = {weight(device, first_weight(op(layer, 10)), {0, s_.hidden}, {}),
                        weight(device, first_weight(op(layer, 11)), columns, {0, s_.hidden}),
                        weight(device, first_weight(op(layer, 12)), columns, {0, s_.hidden})};
        compute(device, gate.kernel, {}) = gate;
        PlacedId y = place(out(op(layer, split ? 14 : 15)), device, {0, s_.hidden}, split);
        Compute down{.device = device,
                     .kernel = KernelKind::kLinear,
                     .ops = {op(layer, 14)},
                     .inputs = {m},
                     .outputs = {y}};
        down.weights = {weight(device, first_weight(op(layer, 14)), {0, s_.hidden}, columns)};
        if (!split) {
            down.ops.push_back(op(layer, 15));
            down.inputs.push_back(x.at(device));
            x[device] = y;
        }
        compute(device, down.kernel, {}) = down;
        parts.push_back(y);
    }
    if (split) all_reduce(parts, group, {op(layer, 15)}, x);
}

void HandPlanner::send(Held& x, const std::vector<DeviceId>& to) {
    std::vector<PlacedId> from;
    for (auto [device, id] : x) from.push_back(id);
    Held result;
    for (size_t i = 0; i < to.size(); ++i) {
        PlacedId source = from[i % from.size()];
        PlacedId destination = place(phase_->values[source.index()].value, to[i], {0, s_.hidden});
        Transfer t{source, destination, Path::kStaged, {.per_token = s_.hidden * 4}};
        phase_->steps.push_back({.action = t,
                                 .layer = layer_,
                                 .stage = stage_,
                                 .predicted_ns = 2000,
                                 .link_bytes = t.bytes});
        result[to[i]] = destination;
    }
    x = result;
}

void HandPlanner::head(Held& x) {
    const OpId select(plan_.graph.ops.size() - 3), norm(plan_.graph.ops.size() - 2),
        lm(plan_.graph.ops.size() - 1);
    const bool split = devices().size() > 1;
    Collective gather{.op = CollectiveOp::kAllGather, .group = {plan_.output_device}};
    for (size_t i = 0; i < devices().size(); ++i) {
        DeviceId d = devices()[i];
        Range rows = share(s_.vocab, i, devices().size());
        PlacedId y = place(out(lm), d, rows);
        std::vector<WeightShardId> weights{weight(d, first_weight(norm), {0, s_.hidden}, {}),
                                           weight(d, first_weight(lm), rows, {0, s_.hidden})};
        Compute& c = compute(d, KernelKind::kNormLinear, {select, norm, lm});
        c.inputs = {x.at(d)};
        c.outputs = {y};
        c.weights = weights;
        gather.contributions.push_back(y);
    }
    if (split) {
        gather.outputs = {place(out(lm), plan_.output_device, {0, s_.vocab})};
        gather.bytes.per_output = s_.vocab * 4;
        phase_->outputs = gather.outputs;
        phase_->steps.push_back({.action = gather,
                                 .layer = layer_,
                                 .stage = stage_,
                                 .predicted_ns = 1500,
                                 .link_bytes = {.per_output = s_.vocab * 2}});
    } else {
        phase_->outputs = gather.contributions;
    }
}

void HandPlanner::lay_phase(Phase& phase) {
    phase_ = &phase;
    Held x;
    for (stage_ = 0; stage_ < static_cast<int>(plan_.stages.size()); ++stage_) {
        layer_ = plan_.stages[static_cast<size_t>(stage_)].first_layer;
        if (stage_ == 0) {
            layer_ = -1;
            embed(x);
        } else {
            send(x, devices());
        }
        const Stage& stage = plan_.stages[static_cast<size_t>(stage_)];
        for (layer_ = stage.first_layer; layer_ <= stage.last_layer; ++layer_) {
            attention(layer_, x);
            mlp(layer_, x);
        }
    }
    --stage_;
    layer_ = static_cast<int>(s_.layers);
    head(x);
}

// Of every product alike, with room for any of these sizes in a thread's scratch.
void HandPlanner::tiles() {
    constexpr int64_t kScratch = 1 << 15;
    std::map<DeviceId, BufferId> areas;
    for (Phase* phase : {&plan_.prefill, &plan_.decode})
        for (Step& step : phase->steps) {
            auto* c = std::get_if<Compute>(&step.action);
            if (!c || c->kernel == KernelKind::kEmbedding || c->kernel == KernelKind::kAttention)
                continue;
            c->tile = {.rows = 12, .tokens = 16, .threads = 1, .shared_bytes = kScratch};
            const auto [area, added] = areas.try_emplace(c->device);
            if (added) area->second = buffer(c->device, BufferRole::kScratch, kScratch);
            c->scratch = area->second;
        }
}

// Where what a device sends at once leaves from.
void HandPlanner::departures() {
    std::map<DeviceId, int64_t> most;
    for (const Phase* phase : {&plan_.prefill, &plan_.decode})
        for (const Step& step : phase->steps)
            for (const PlacedId id : sent_values(step)) {
                const PlacedValue& sent = phase->values[id.index()];
                int64_t& bytes = most[sent.device];
                bytes = std::max(bytes, plan_.buffer(sent.buffer).size);
            }
    for (const auto& [device, bytes] : most) buffer(device, BufferRole::kExchange, bytes);
}

void HandPlanner::account() {
    for (size_t i = 0; i < plan_.machine.devices.size(); ++i) {
        DeviceId d(i);
        const DeviceInfo& device = plan_.machine.devices[i];
        plan_.memory.push_back({d, device.memory_bytes, ends_[{d, Arena::kWeights}],
                                ends_[{d, Arena::kKv}], ends_[{d, Arena::kActivations}],
                                ends_[{d, Arena::kStaging}], ends_[{d, Arena::kScratch}],
                                device.reserved_bytes});
    }
}

Plan HandPlanner::run() {
    for (size_t i = 0; i < plan_.machine.devices.size(); ++i)
        for (const BatchBuffer& array : batch_buffers(plan_.workload))
            buffer(DeviceId(i), array.role, array.bytes());
    lay_phase(plan_.prefill);
    lay_phase(plan_.decode);
    const BatchBuffer table = block_table(plan_.workload);
    for (size_t i = 0; i < plan_.machine.devices.size(); ++i)
        if (has_kv(plan_, DeviceId(i))) buffer(DeviceId(i), table.role, table.bytes());
    departures();
    tiles();
    account();
    plan_.prediction = {.prefill_ns = 2'000'000,
                        .decode_ns_per_token = 125'000,
                        .lower_bound_ns = 100'000,
                        .objective_ns = 125'000};
    plan_.prediction.decode_busy_ns.assign(plan_.machine.devices.size(), 50'000);
    plan_.why.binding = "weights read on host[0]";
    plan_.why.runners_up = {{"tp 1 x pp 1", 150'000, "reads every weight from one device"}};
    plan_.why.cuts = {"before layer 1: 64 bytes a token"};
    plan_.why.metis = "METIS and the topological order agree";
    plan_.why.metis_cost_ns = plan_.why.topological_cost_ns = 125'000;
    return std::move(plan_);
}

}  // namespace

Machine tiny_machine(int num_devices) {
    Machine machine{.name = "tiny"};
    machine.domains.push_back({"DRAM", 20'000'000'000});
    for (int i = 0; i < num_devices; ++i) {
        DeviceInfo d{.name = "host[" + std::to_string(i) + "]",
                     .arch = "x86-64-v3",
                     .index = i,
                     .memory_bytes = 1 << 20};
        d.reserved_bytes = 4096;
        d.memory_bandwidth = 10'000'000'000;
        d.memory_domain = 0;
        d.flops_f32 = 50'000'000'000;
        d.limits.num_compute_units = 1;
        machine.devices.push_back(d);
        for (int j = 0; j < num_devices; ++j)
            if (i != j)
                machine.links.push_back(
                    {DeviceId(i), DeviceId(j), LinkKind::kSameMemory, 8'000'000'000, 500, 0});
    }
    return machine;
}

Plan hand_plan(const std::vector<std::vector<int>>& stages, const TinyShape& shape) {
    return HandPlanner(stages, shape).run();
}

}  // namespace cleave::test
