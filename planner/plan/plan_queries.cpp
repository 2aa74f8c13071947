// SPDX-License-Identifier: Apache-2.0
#include "planner/plan/plan_queries.h"

#include <algorithm>
#include <set>
#include <string>

#include "planner/plan/used_devices.h"
#include "runtime/base/errors.h"

namespace cleave::planner {

PassPoint pass_point(const Plan& plan, bool is_prefill) {
    const Workload& w = plan.workload;
    if (!is_prefill) return {w.batch, w.batch, w.batch * (w.decode_past() + 1)};
    int64_t tokens = std::min(w.max_tokens(), w.batch * w.prompt_tokens);
    // Token i of a sequence sees i + 1 keys; the chunk holds the sequences one after the other.
    int64_t keys = 0;
    for (int64_t left = tokens; left > 0; left -= w.prompt_tokens) {
        int64_t n = std::min(left, w.prompt_tokens);
        keys += n * (n + 1) / 2;
    }
    return {tokens, w.all_logits ? tokens : w.batch, keys};
}

namespace {

// Bytes between ordered pairs of devices, dense: tensor parallelism uses every pair in every layer.
class Traffic {
public:
    explicit Traffic(size_t devices) : devices_(devices), bytes_(devices * devices) {}

    void add(DeviceId from, DeviceId to, int64_t bytes) {
        bytes_[from.index() * devices_ + to.index()] += bytes;
    }

    // A step's bytes in the proportions of `shares`; rounding moves no byte: the parts add up to
    // the step's bytes.
    void add(const Traffic& shares, int64_t bytes) {
        int64_t whole = 0, seen = 0, given = 0;
        for (int64_t share : shares.bytes_) whole += share;
        for (size_t pair = 0; pair < bytes_.size(); ++pair) {
            if (shares.bytes_[pair] == 0) continue;
            seen += shares.bytes_[pair];
            int64_t until = static_cast<int64_t>(static_cast<__int128>(bytes) * seen / whole);
            bytes_[pair] += until - given;
            given = until;
        }
    }

    void add_times(const Traffic& other, int64_t times) {
        for (size_t pair = 0; pair < bytes_.size(); ++pair)
            bytes_[pair] += other.bytes_[pair] * times;
    }

    LinkTraffic sparse() const {
        LinkTraffic traffic;
        for (size_t pair = 0; pair < bytes_.size(); ++pair)
            if (bytes_[pair] != 0)
                traffic[{DeviceId(pair / devices_), DeviceId(pair % devices_)}] = bytes_[pair];
        return traffic;
    }

private:
    size_t devices_;
    std::vector<int64_t> bytes_;  // [from, to]
};

// Of a tree: chains inside the nodes, and a binary tree over the first device of each. Of a
// hierarchical sum: rings inside the nodes, and a ring over the nodes for each place in them.
void add_shares_of_nodes(const Machine& machine, const Collective& c, Traffic& shares) {
    std::vector<std::vector<DeviceId>> nodes;
    for (DeviceId d : c.group) {
        auto at = std::find_if(nodes.begin(), nodes.end(), [&](const auto& node) {
            return machine.device(node[0]).host == machine.device(d).host;
        });
        if (at == nodes.end()) at = nodes.insert(at, std::vector<DeviceId>());
        at->push_back(d);
    }
    const auto both_ways = [&](DeviceId a, DeviceId b) {
        shares.add(a, b, 1);
        shares.add(b, a, 1);
    };
    const auto count = static_cast<int64_t>(nodes.size());
    for (size_t n = 0; n < nodes.size(); ++n) {
        const std::vector<DeviceId>& node = nodes[n];
        const auto members = static_cast<int64_t>(node.size());
        if (c.form() == SumForm::kTree) {
            for (size_t i = 1; i < node.size(); ++i) both_ways(node[i - 1], node[i]);
            if (n > 0) both_ways(nodes[(n - 1) / 2][0], node[0]);
            continue;
        }
        const std::vector<DeviceId>& next = nodes[(n + 1) % nodes.size()];
        for (size_t i = 0; i < node.size(); ++i) {
            if (members > 1)
                shares.add(node[i], node[(i + 1) % node.size()], count * (members - 1));
            shares.add(node[i], next[i % next.size()], count - 1);
        }
    }
}

// Shares of a collective's bytes between ordered pairs of devices.
void add_shares(const Machine& machine, const Phase& phase, const Collective& c, Traffic& shares) {
    auto device = [&](PlacedId id) { return phase.values[id.index()].device; };
    if (c.op == CollectiveOp::kAllGather) {
        for (PlacedId id : c.contributions)
            for (DeviceId to : c.group)
                if (device(id) != to) {
                    const Box& box = phase.values[id.index()].box;
                    shares.add(device(id), to, box.size() > 1 ? box.back().size() : 1);
                }
    } else if (c.form() == SumForm::kOneShot) {
        for (PlacedId id : c.contributions)
            for (DeviceId to : c.group)
                if (device(id) != to) shares.add(device(id), to, 1);
    } else if (c.form() == SumForm::kTwoPhase) {
        for (DeviceId from : c.group)
            for (DeviceId to : c.group)
                if (from != to) shares.add(from, to, 1);
    } else if (c.form() == SumForm::kRing) {
        for (size_t i = 0; i < c.group.size(); ++i)
            if (c.group.size() > 1) shares.add(c.group[i], c.group[(i + 1) % c.group.size()], 1);
    } else {
        add_shares_of_nodes(machine, c, shares);
    }
}

// Collectives with equal signatures have equal traffic. Layers repeat, so there are few.
std::vector<int64_t> signature(const Phase& phase, const Collective& c, int64_t bytes) {
    std::vector<int64_t> key{static_cast<int64_t>(c.op), static_cast<int64_t>(c.form()), bytes,
                             static_cast<int64_t>(c.group.size())};
    for (DeviceId d : c.group) key.push_back(static_cast<int64_t>(d.index()));
    for (PlacedId id : c.contributions) {
        const PlacedValue& value = phase.values[id.index()];
        key.push_back(static_cast<int64_t>(value.device.index()));
        if (c.op == CollectiveOp::kAllGather)
            key.push_back(value.box.size() > 1 ? value.box.back().size() : 1);
    }
    return key;
}

}  // namespace

LinkTraffic link_traffic(const Plan& plan, bool is_prefill) {
    const Phase& phase = plan.phase(is_prefill);
    const PassPoint point = pass_point(plan, is_prefill);
    const size_t devices = plan.machine.devices.size();
    Traffic traffic(devices);
    std::map<std::vector<int64_t>, std::pair<const Collective*, int64_t>> alike;  // how many
    for (const Step& step : phase.steps) {
        const int64_t bytes = step.link_bytes.at(point);
        if (const Transfer* t = step.transfer())
            traffic.add(phase.values[t->source.index()].device,
                        phase.values[t->destination.index()].device, bytes);
        if (const Collective* c = step.collective()) {
            auto& [first, count] = alike[signature(phase, *c, bytes)];
            first = c;
            ++count;
        }
    }
    for (const auto& [key, entry] : alike) {
        Traffic shares(devices), once(devices);
        add_shares(plan.machine, phase, *entry.first, shares);
        once.add(shares, key[2]);
        traffic.add_times(once, entry.second);
    }
    return traffic.sparse();
}

int64_t nodes_used(const Plan& plan) {
    std::set<std::string> hosts;
    for (const Stage& stage : plan.stages)
        for (DeviceId d : stage.devices) hosts.insert(plan.machine.device(d).host);
    return std::ssize(hosts);
}

std::vector<DeviceId> step_devices(const Phase& phase, const Step& step) {
    if (const Compute* c = step.compute()) return {c->device};
    auto device = [&](PlacedId id) { return phase.values[id.index()].device; };
    if (const Transfer* t = step.transfer()) return {device(t->source), device(t->destination)};
    const Collective& c = *step.collective();
    std::vector<DeviceId> devices = c.group;
    for (PlacedId id : c.contributions)
        if (std::find(devices.begin(), devices.end(), device(id)) == devices.end())
            devices.push_back(device(id));
    return devices;
}

ValueId step_value(const Plan& plan, const Phase& phase, const Step& step) {
    if (const Compute* c = step.compute()) {
        if (!c->outputs.empty()) return phase.values[c->outputs[0].index()].value;
        return c->ops.empty() ? ValueId() : plan.graph.op(c->ops.back()).outputs[0];
    }
    if (const Transfer* t = step.transfer()) return phase.values[t->source.index()].value;
    return phase.values[step.collective()->contributions[0].index()].value;
}

std::string step_kind(const Step& step) {
    return step.compute() ? "compute" : step.transfer() ? "transfer" : "collective";
}

std::string_view route_name(const Plan& plan, const Phase& phase, const Transfer& t) {
    if (t.path == Path::kPeer) return "peer";
    const Link* link = plan.machine.link(phase.values[t.source.index()].device,
                                         phase.values[t.destination.index()].device);
    return link && link->kind == LinkKind::kSameMemory ? "same_memory"
           : link && link->kind == LinkKind::kNetwork  ? "network"
                                                       : "host_staged";
}

std::string step_implementation(const Plan& plan, const Phase& phase, const Step& step) {
    if (const Compute* c = step.compute()) return std::string(kernel_kind_name(c->kernel));
    if (const Transfer* t = step.transfer()) return std::string(route_name(plan, phase, *t));
    const Collective& c = *step.collective();
    const bool gathers = c.op == CollectiveOp::kAllGather && c.path == Path::kVendor;
    return std::string(gathers ? path_name(c.path) : sum_form_name(c.form()));
}

int64_t step_bytes(const Step& step, const PassPoint& point) {
    if (const Compute* c = step.compute())
        return c->weight_bytes.at(point) + c->activation_bytes.at(point);
    if (const Transfer* t = step.transfer()) return t->bytes.at(point);
    return step.collective()->bytes.at(point);
}

std::string step_label(const Plan& plan, bool is_prefill, StepId id) {
    const Phase& phase = plan.phase(is_prefill);
    const Step& step = phase.steps[id.index()];
    const auto value = [&](PlacedId shown) {
        return plan.graph.value(phase.values[shown.index()].value).name;
    };
    std::string what;
    if (const Compute* c = step.compute())
        what = fmt::format("{}, {}", kernel_kind_name(c->kernel),
                           c->ops.empty() ? "nothing" : plan.graph.op(c->ops.front()).name);
    if (const Transfer* t = step.transfer()) what = "transfer of " + value(t->source);
    if (const Collective* c = step.collective())
        what = fmt::format("{} of {}", collective_op_name(c->op),
                           value((c->contributions.empty() ? c->outputs : c->contributions)[0]));
    return fmt::format("{} step {} ({})", is_prefill ? "prefill" : "decode", id, what);
}

Arena arena_of(BufferRole role) {
    switch (role) {
        case BufferRole::kConstant: return Arena::kWeights;
        case BufferRole::kKvSlab: return Arena::kKv;
        case BufferRole::kActivations: return Arena::kActivations;
        case BufferRole::kScratch: return Arena::kScratch;
        default: return Arena::kStaging;
    }
}

BufferId find_buffer(const Plan& plan, DeviceId device, BufferRole role) {
    for (size_t i = 0; i < plan.buffers.size(); ++i)
        if (plan.buffers[i].device == device && plan.buffers[i].role == role) return BufferId(i);
    return {};
}

std::vector<std::string> buffer_names(const Plan& plan) {
    std::vector<std::string> names;
    for (const Buffer& b : plan.buffers) names.emplace_back(buffer_role_name(b.role));
    for (const WeightShard& s : plan.weights)
        names[s.buffer.index()] = plan.graph.weight(s.weight).name;
    for (const RopeShard& s : plan.rope_tables) {
        const std::string& name = plan.graph.rope_table(s.table).name;
        names[s.buffer.index()] = name.empty() ? "rope" : name;
    }
    for (const KvSlab& s : plan.kv_slabs) names[s.buffer.index()] = plan.graph.value(s.state).name;
    for (const Phase* phase : {&plan.prefill, &plan.decode})
        for (const PlacedValue& p : phase->values)
            if (p.buffer.valid() && plan.buffer(p.buffer).role == BufferRole::kInput)
                names[p.buffer.index()] = "input." + plan.graph.value(p.value).name;
    return names;
}

std::vector<int64_t> decode_widths(const Workload& workload) {
    std::vector<int64_t> widths;
    for (const int64_t width : {1, 8})
        if (width < workload.batch) widths.push_back(width);
    widths.push_back(workload.batch);
    return widths;
}

bool decodes_by_widths(const Plan& plan) {
    return std::any_of(plan.decode.steps.begin(), plan.decode.steps.end(), [](const Step& step) {
        return step.compute() && !step.compute()->narrow.empty();
    });
}

std::array<BatchBuffer, 5> batch_buffers(const Workload& w) {
    return {{{BufferRole::kTokenIds, w.max_tokens()},
             {BufferRole::kPositions, w.max_tokens()},
             {BufferRole::kSlots, w.max_tokens()},
             {BufferRole::kSequenceStarts, w.batch + 1},
             {BufferRole::kOutputRows, w.max_outputs()}}};
}

BatchBuffer block_table(const Workload& w) {
    return {BufferRole::kBlockTable, w.batch * w.blocks_per_slot()};
}

bool has_kv(const Plan& plan, DeviceId device) {
    return std::any_of(plan.kv_slabs.begin(), plan.kv_slabs.end(),
                       [&](const KvSlab& s) { return s.device == device; });
}

int64_t longest_window(const Graph& graph) {
    int64_t longest = 0;
    for (const importer::Op& op : graph.ops) {
        if (op.kind != importer::OpKind::kAttention) continue;
        const int64_t window = op.as<importer::AttentionAttrs>().window;
        if (window <= 0) return 0;
        longest = std::max(longest, window);
    }
    return longest;
}

std::vector<int64_t> core_shares(const Plan& plan, int64_t cores) {
    const auto on_cores = [&](DeviceId id) {
        const DeviceInfo& device = plan.machine.device(id);
        return is_on_cores(device.kind) && !device.is_numa_node();
    };
    std::vector<int64_t> shares(plan.machine.devices.size(), 0);
    for (size_t d = 0; d < shares.size(); ++d) {
        const DeviceInfo& device = plan.machine.devices[d];
        if (device.is_numa_node())
            shares[d] =
                std::max<int64_t>(1, cores * device.limits.num_compute_units / device.host_cores);
        else
            shares[d] = is_on_cores(device.kind) ? 1 : 0;
    }
    for (const Stage& stage : plan.stages) {
        std::map<std::string, int64_t> sharers, position;  // by host
        for (DeviceId id : stage.devices) sharers[plan.machine.device(id).host] += on_cores(id);
        for (DeviceId id : stage.devices) {
            if (!on_cores(id)) continue;
            const std::string& host = plan.machine.device(id).host;
            const int64_t n = sharers[host];
            const int64_t share = cores / n + (position[host]++ < cores % n ? 1 : 0);
            shares[id.index()] = std::max(shares[id.index()], share);
        }
    }
    return shares;
}

DType placed_dtype(const importer::Value& value, const Workload& workload) {
    switch (value.kind) {
        case importer::ValueKind::kTokenIds: return DType::kInt32;
        case importer::ValueKind::kLogits: return DType::kF32;
        case importer::ValueKind::kActivation: return workload.activation_dtype;
        default: return value.dtype;
    }
}

DType weights_dtype(const Plan& plan) {
    std::map<DType, int64_t> bytes;
    for (const WeightShard& s : plan.weights) bytes[s.dtype] += plan.buffer(s.buffer).size;
    auto most = std::max_element(bytes.begin(), bytes.end(),
                                 [](auto& a, auto& b) { return a.second < b.second; });
    return most == bytes.end() ? plan.workload.dtype.value_or(DType::kF32) : most->first;
}

std::string head_split(const Plan& plan) {
    const Stage* widest = nullptr;
    for (const Stage& s : plan.stages)
        if (!widest || s.devices.size() > widest->devices.size()) widest = &s;
    if (!widest || widest->devices.size() < 2) return "";
    // Of the stage's first attention: the launches that share its KV state.
    int64_t group = 0, fewest = 0, most = 0, held = 0, kv_heads = 0, idle = 0;
    size_t launches = 0;
    bool whole = true;
    for (const Step& step : plan.decode.steps) {
        const Compute* c = step.compute();
        if (!c || c->kernel != KernelKind::kAttention || c->ops[0] < widest->first_op ||
            c->ops[0] > widest->last_op || launches == widest->devices.size())
            continue;
        if (launches > 0 && c->heads.begin == 0) break;  // the next layer's
        const auto& attrs = plan.graph.op(c->ops[0]).as<importer::AttentionAttrs>();
        group = attrs.num_heads / attrs.num_kv_heads;
        kv_heads = attrs.num_kv_heads;
        whole = whole && c->heads.begin % group == 0 && c->heads.end % group == 0;
        fewest = launches == 0 ? c->heads.size() : std::min(fewest, c->heads.size());
        most = std::max(most, c->heads.size());
        held += plan.kv_slabs[c->kv.index()].kv_heads.size();
        ++launches;
    }
    if (launches == 0) return "";
    idle = static_cast<int64_t>(widest->devices.size() - launches);
    std::string text =
        fmt::format("{} query heads a device",
                    fewest == most ? std::to_string(most) : fmt::format("{} to {}", fewest, most));
    if (idle > 0) text += fmt::format(", {} without any", idle);
    if (group == 1) return text;
    return text + (whole
                       ? ": whole KV groups"
                       : fmt::format(", cut inside KV groups: {} KV heads are held {} times in all",
                                     kv_heads, held));
}

int64_t Plan::num_replicas() const {
    int64_t all = num_alike();
    for (const Plan& other : others) all += other.num_alike();
    return all;
}

std::vector<const Plan*> makes_of(const Plan& plan) {
    std::vector<const Plan*> makes{&plan};
    for (const Plan& other : plan.others) makes.push_back(&other);
    return makes;
}

ReplicaOfMake find_replica(const Plan& plan, int64_t replica) {
    CLEAVE_CHECK(replica >= 0 && replica < plan.num_replicas())
        << "replica " << replica << " of " << plan.num_replicas();
    const Plan* make = &plan;
    for (size_t next = 0; replica >= make->num_alike(); ++next) {
        replica -= make->num_alike();
        make = &plan.others[next];
    }
    return {*make, replica};
}

int64_t served_users(const Plan& plan) {
    int64_t users = 0;
    for (const Plan* make : makes_of(plan)) users += make->prediction.serving.users;
    return users;
}

std::pair<int64_t, int64_t> range_of_makes(const Plan& plan, int64_t Serving::* time) {
    int64_t least = INT64_MAX, most = 0;
    for (const Plan* make : makes_of(plan)) {
        least = std::min(least, make->prediction.serving.*time);
        most = std::max(most, make->prediction.serving.*time);
    }
    return {least, most};
}

int64_t sequences_at_once(const Plan& plan) {
    int64_t all = 0;
    for (const Plan* make : makes_of(plan)) all += make->num_alike() * make->workload.batch;
    return all;
}

Plan replica_plan(const Plan& plan, int64_t replica) {
    const auto [make, number] = find_replica(plan, replica);
    Plan one = make;
    one.others.clear();
    one.machine = replica_machine(plan, replica);
    for (DeviceMemory& m : one.memory) {
        m.capacity = one.machine.device(m.device).memory_bytes;
        m.reserved = one.machine.device(m.device).reserved_bytes;
    }
    one.copies.clear();
    one.options.replicas = 1;
    const int64_t users = make.prediction.serving.users, replicas = make.num_alike();
    one.prediction.serving.users = (number + 1) * users / replicas - number * users / replicas;
    return one;
}

void demand_one_replica(const Plan& plan, std::string_view what) {
    if (plan.num_replicas() == 1) return;
    throw UserError("{} one replica, and the plan has {}; plan with $replicas 1", what,
                    plan.num_replicas());
}

double tokens_per_second(const Plan& plan) {
    const Serving& s = plan.prediction.serving;
    if (s.users > 0 && s.tpot_ns > 0) {
        double all = 1e9 * static_cast<double>(s.users) / static_cast<double>(s.tpot_ns);
        for (const Plan& other : plan.others) all += tokens_per_second(other);
        return all;
    }
    double ns = static_cast<double>(plan.prediction.decode_ns_per_token);
    return ns > 0 ? 1e9 * static_cast<double>(plan.workload.batch) / ns : 0.0;
}

int64_t price_micros_per_hour(const Plan& plan) {
    int64_t sum = 0;
    for (const Plan* make : makes_of(plan))
        for (int64_t replica = 0; replica < make->num_alike(); ++replica)
            for (DeviceId d : used_devices(*make)) {
                const int64_t price = replica_machine(*make, replica).device(d).price_micros;
                if (price == 0) return 0;
                sum += price;
            }
    return sum;
}

double cost_per_million_tokens(const Plan& plan) {
    constexpr double kSecondsAnHour = 3600;
    const double rate = tokens_per_second(plan);
    return rate > 0 ? static_cast<double>(price_micros_per_hour(plan)) / kSecondsAnHour / rate : 0;
}

double gap(const Plan& plan) {
    const Prediction& p = plan.prediction;
    if (p.lower_bound_ns <= 0) return 0.0;
    return static_cast<double>(p.objective_ns) / static_cast<double>(p.lower_bound_ns) - 1.0;
}

}  // namespace cleave::planner
