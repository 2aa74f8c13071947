// SPDX-License-Identifier: Apache-2.0
#include "planner/export/model/segments.h"

#include <map>

#include "planner/analysis/sharding.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

using importer::Op;
using importer::OpKind;
using importer::ValueKind;

constexpr int kNowhere = -1;  // made by an exchange, or given from outside

class Scheduler {
public:
    explicit Scheduler(const Plan& plan)
        : plan_(plan), phase_(plan.prefill), devices_(plan.machine.devices.size()) {}

    Schedule run() {
        for (const Op& op : plan_.graph.ops) {
            if (importer::keeps_onnx_form(op))
                throw UserError(
                    "{}: operator {} ({}) is none of a Llama's; a graph with it can be exported as "
                    "text, json, dot or onnx only",
                    plan_.graph.name, op.name, onnx_op_type(op));
            for (ValueId v : op.outputs) producer_[v] = &op;
        }
        for (PlacedId id : phase_.inputs) {
            const PlacedValue& placed = placed_at(id);
            put(placed.device, {"input_ids", placed.value, {}}, kNowhere);
        }
        for (const Step& step : phase_.steps) {
            stage_ = step.stage;
            if (const Compute* c = step.compute()) compute(*c);
            if (const Transfer* t = step.transfer()) transfer(*t);
            if (const Collective* c = step.collective()) collective(*c);
        }
        for (PlacedId id : phase_.outputs) {
            const PlacedValue& placed = placed_at(id);
            schedule_.logits = use(placed.device, placed.value, kNowhere);
        }
        drop_unread();
        return std::move(schedule_);
    }

private:
    struct Home {
        DeviceTensor tensor;
        int segment = kNowhere;
    };
    struct DeviceState {
        int open = kNowhere;
        std::map<ValueId, Home> values;
        std::map<KvSlabId, int> appended_in;
    };

    const PlacedValue& placed_at(PlacedId id) const { return phase_.values[id.index()]; }
    DeviceState& state(DeviceId device) { return devices_[device.index()]; }

    std::string base_name(ValueId v) const {
        if (plan_.graph.value(v).kind == ValueKind::kLogits) return "logits";
        return producer_.at(v)->name;
    }
    Range columns_of(const PlacedValue& placed) const {
        Range r = placed.box.back();
        if (r.end == kWhole) r.end = last_dimension(plan_.graph.value(placed.value));
        return r;
    }
    DeviceTensor named(PlacedId id) const {
        const PlacedValue& placed = placed_at(id);
        const Range columns = columns_of(placed);
        const bool whole = columns.size() == last_dimension(plan_.graph.value(placed.value));
        const char* suffix = placed.partial ? ".partial" : whole ? "" : ".shard";
        return {base_name(placed.value) + suffix, placed.value, columns};
    }

    void put(DeviceId device, DeviceTensor tensor, int segment) {
        const ValueId v = tensor.value;
        state(device).values[v] = {std::move(tensor), segment};
    }

    // Segment `reader` of the device (or an exchange) reads the value: it becomes an output of the
    // segment that made it.
    DeviceTensor use(DeviceId device, ValueId value, int reader) {
        auto at = state(device).values.find(value);
        CLEAVE_CHECK(at != state(device).values.end())
            << "value " << plan_.graph.value(value).name << " is not on its reader's device";
        const Home& home = at->second;
        if (home.segment != kNowhere && home.segment != reader)
            add(schedule_.segments[static_cast<size_t>(home.segment)].outputs, home.tensor);
        if (reader != kNowhere && home.segment != reader)
            add(schedule_.segments[static_cast<size_t>(reader)].inputs, home.tensor);
        return home.tensor;
    }
    static void add(std::vector<DeviceTensor>& tensors, const DeviceTensor& tensor) {
        for (const DeviceTensor& t : tensors)
            if (t.name == tensor.name) return;
        tensors.push_back(tensor);
    }

    int open(DeviceId device) {
        int& segment = state(device).open;
        if (segment != kNowhere) return segment;
        segment = static_cast<int>(schedule_.segments.size());
        schedule_.order.push_back({segment, -1});
        Segment fresh;
        fresh.device = device;
        fresh.stage = stage_;
        schedule_.segments.push_back(std::move(fresh));
        return segment;
    }

    void compute(const Compute& c) {
        // A device that the pipeline returns to has one segment for each of its stages.
        if (int s = state(c.device).open;
            s != kNowhere && schedule_.segments[static_cast<size_t>(s)].stage != stage_)
            state(c.device).open = kNowhere;
        const int s = open(c.device);
        for (PlacedId id : c.inputs) use(c.device, placed_at(id).value, s);
        Segment& segment = schedule_.segments[static_cast<size_t>(s)];
        for (OpId id : c.ops) {
            const Op& op = plan_.graph.op(id);
            DeviceTensor result{op.name, op.outputs.at(0), {}};
            for (PlacedId out : c.outputs)
                if (placed_at(out).value == result.value) result = named(out);
            if (op.kind == OpKind::kKvAppend) {
                segment.appends.push_back(c.kv);
                state(c.device).appended_in[c.kv] = s;
            }
            if (op.kind == OpKind::kAttention && state(c.device).appended_in.at(c.kv) != s)
                segment.reads.push_back(c.kv);
            segment.ops.push_back({id, &c, result});
        }
        for (PlacedId id : c.outputs) put(c.device, named(id), s);
    }

    void exchange(Exchange e) {
        e.stage = stage_;
        for (DeviceId d : e.from) state(d).open = kNowhere;
        for (DeviceId d : e.to) {
            state(d).open = kNowhere;
            put(d, e.result, kNowhere);
        }
        schedule_.order.push_back({-1, static_cast<int>(schedule_.exchanges.size())});
        schedule_.exchanges.push_back(std::move(e));
    }

    void transfer(const Transfer& t) {
        const PlacedValue& source = placed_at(t.source);
        Exchange e;
        e.from = {source.device};
        e.to = {placed_at(t.destination).device};
        e.sources = {use(source.device, source.value, kNowhere)};
        e.result = named(t.destination);
        exchange(std::move(e));
    }

    void collective(const Collective& c) {
        Exchange e;
        e.kind = c.op == CollectiveOp::kAllReduce ? Exchange::Kind::kAllReduce
                                                  : Exchange::Kind::kAllGather;
        for (PlacedId id : c.contributions) {
            e.from.push_back(placed_at(id).device);
            e.sources.push_back(use(e.from.back(), placed_at(id).value, kNowhere));
        }
        e.to = c.group;
        e.form = c.form();
        e.result = named(c.outputs.at(0));
        if (!c.epilogue.empty()) {
            const ValueId summed = placed_at(c.contributions.at(0)).value;
            e.result = {base_name(summed), summed, e.result.columns};
        }
        exchange(std::move(e));
        for (size_t m = 0; m < c.group.size() && !c.epilogue.empty(); ++m) epilogue(c, m);
    }

    // The residual's Add of a member, and the norm that may follow it.
    void epilogue(const Collective& c, size_t m) {
        CLEAVE_CHECK(c.epilogue.size() == (c.weights.empty() ? 1u : 2u))
            << "an epilogue of no known form";
        const DeviceId device = c.group[m];
        const int s = open(device);
        use(device, placed_at(c.contributions[0]).value, s);
        use(device, placed_at(c.epilogue_inputs.at(m)).value, s);
        for (size_t i = 0; i < c.epilogue.size(); ++i) {
            const DeviceTensor result = named(c.outputs.at(i * c.group.size() + m));
            const WeightShardId weight = i == 0 ? WeightShardId() : c.weights.at(m);
            schedule_.segments[static_cast<size_t>(s)].ops.push_back(
                {c.epilogue[i], nullptr, result, weight});
            put(device, result, s);
        }
    }

    // The sum of the last all-reduce of a stage lies on all its members, and only some send it on.
    void drop_unread() {
        auto is_unread = [this](const ScheduleItem& item) {
            if (item.segment < 0) return false;
            const Segment& s = schedule_.segments[static_cast<size_t>(item.segment)];
            return s.outputs.empty() && s.appends.empty();
        };
        std::erase_if(schedule_.order, is_unread);
    }

    const Plan& plan_;
    const Phase& phase_;
    Schedule schedule_;
    std::vector<DeviceState> devices_;
    std::map<ValueId, const Op*> producer_;
    int stage_ = 0;
};

}  // namespace

Schedule make_schedule(const Plan& plan) { return Scheduler(plan).run(); }

const WeightShard* find_shard(const Plan& plan, const SegmentOp& item, size_t i) {
    const Op& op = plan.graph.op(item.op);
    if (i >= op.weights.size()) return nullptr;
    if (!item.compute) return item.weight.valid() ? &plan.weights[item.weight.index()] : nullptr;
    for (WeightShardId id : item.compute->weights)
        if (plan.weights[id.index()].weight == op.weights[i]) return &plan.weights[id.index()];
    return nullptr;
}

const WeightShard& shard_of(const Plan& plan, const SegmentOp& item, size_t i) {
    const WeightShard* shard = find_shard(plan, item, i);
    CLEAVE_CHECK(shard) << plan.graph.op(item.op).name << " lacks weight " << i << " on its device";
    return *shard;
}

int layer_of(const Plan& plan, const KvSlab& slab) {
    for (const Op& op : plan.graph.ops)
        if (op.kind == OpKind::kKvAppend && op.outputs.at(0) == slab.state) return op.layer;
    CLEAVE_CHECK(false) << "a KV slab of no append";
    return -1;
}

}  // namespace cleave::planner
