// SPDX-License-Identifier: Apache-2.0
// Transfers and collectives: what may pass between devices, and what each then holds.
#include <algorithm>
#include <set>

#include "planner/machine/vendor.h"
#include "planner/plan/foreign_op.h"
#include "planner/plan/plan_queries.h"
#include "planner/verify/walk.h"

namespace cleave::planner::verify {

using importer::OpKind;

// The payload that a step states is that of the box it moves.
void PhaseWalk::check_bytes(const Amount& bytes, ValueId value, Range columns) {
    const auto& shape = graph().value(value).shape;
    if (shape.size() != 2 || columns.end == kWhole) return;
    int64_t row = dtype_bytes(placed_dtype(plan_, value), columns.size());
    Amount expected;
    switch (rows_of(shape[0])) {
        case Rows::kTokens: expected.per_token = row; break;
        case Rows::kOutputs: expected.per_output = row; break;
        default: return;
    }
    if (bytes.constant != 0 || bytes.per_key != 0 || bytes.per_token != expected.per_token ||
        bytes.per_output != expected.per_output)
        fail("payload-bytes",
             "a row of {} {} has {} bytes, the step says {} + {} a token + {} an output",
             value_name(value), range_text(columns), row, bytes.constant, bytes.per_token,
             bytes.per_output);
}

void PhaseWalk::transfer(const Transfer& t) {
    const PlacedValue &from = placed(t.source), &to = placed(t.destination);
    if (from.device == to.device) fail("transfer-device", "from a device to itself");
    if (from.value != to.value)
        fail("transfer-value", "{} becomes {}", value_name(from.value), value_name(to.value));
    if (!contains(columns_of(to), columns_of(from)))
        fail("transfer-box", "columns {} do not fit into {}", range_text(columns_of(from)),
             range_text(columns_of(to)));
    if (from.partial || to.partial)
        fail("partial-read", "a summand is sent as if it were the value");
    if (t.path == Path::kPeer) check_peers({from.device, to.device});
    if (t.path == Path::kVendor) fail("exchange-path", "no library carries out a transfer");
    check_arrivals({t.source}, {to.device});
    check_departures({t.source}, t.path);
    read_summand(t.source);
    check_bytes(t.bytes, from.value, columns_of(from));

    const Range columns = columns_of(from);
    bool twice = written_[t.destination.index()].add(columns);
    twice = held_[{to.device, to.value}].add(columns) || twice;
    if (twice)
        fail("transfer-twice", "{} {} is on {} already", value_name(to.value), range_text(columns),
             device_name(to.device));
    Lifetime& life = trace_.lifetimes[t.destination.index()];
    if (!life.written) life.first_write = static_cast<int64_t>(step_);
    life.written = true;
    content_[t.destination.index()] = Known{.columns = columns_of(to)};
}

// Kernels of each reach the memory of all others: GPUs of one kind, with direct links both ways.
void PhaseWalk::check_peers(const std::vector<DeviceId>& devices) {
    const Machine& machine = plan_.machine;
    auto direct = [](const Link& l) {
        return l.kind == LinkKind::kSameMemory || is_own_link(l.kind) || l.peer_access;
    };
    for (DeviceId a : devices) {
        if (!machine.device(a).limits.has_warps())
            fail("exchange-peers", "{} has no kernels that reach a peer", device_name(a));
        for (DeviceId b : devices) {
            const Link* link = a == b ? nullptr : machine.link(a, b);
            if (a != b &&
                (machine.device(a).kind != machine.device(b).kind || !link || !direct(*link)))
                fail("exchange-peers", "{} does not reach {}'s memory", device_name(a),
                     device_name(b));
        }
    }
    if (machine.devices.size() > 64)
        fail("exchange-peers", "{} devices; 64 have a bit", machine.devices.size());
    for (DeviceId a : devices) {
        const BufferId signals = find_buffer(plan_, a, BufferRole::kPeerSignals);
        if (!signals.valid() ||
            plan_.buffer(signals).size < std::ssize(machine.devices) * 4 * 4 * 32)
            fail("exchange-peers", "{} has no room for its signals", device_name(a));
    }
}

// Of cards that are here: the library joins cards of one vendor, each once, and sums rows or, on
// one host, sends blocks of them. Simulated ones have any library.
void PhaseWalk::check_vendor(const Collective& c) {
    const Machine& machine = plan_.machine;
    std::set<DeviceId> devices(c.group.begin(), c.group.end());
    for (PlacedId id : c.contributions) devices.insert(placed(id).device);
    for (DeviceId a : devices) {
        const DeviceInfo& one = machine.device(a);
        if (!is_card(one.kind)) {
            if (one.kind != DeviceKind::kSim)
                fail("exchange-vendor", "{} is of no vendor with a library of collectives",
                     device_name(a));
            continue;
        }
        if (graph().value(placed(c.contributions[0]).value).kind == importer::ValueKind::kTensor)
            fail("exchange-vendor", "a tensor goes through the host, not by {}'s library",
                 device_name(a));
        if (one.collectives.empty())
            fail("exchange-vendor", "{} has no library of collectives", device_name(a));
        for (DeviceId b : devices) {
            const DeviceInfo& other = machine.device(b);
            if (a >= b) continue;
            if (one.kind != other.kind || one.collectives != other.collectives)
                fail("exchange-vendor", "{} and {} have no library in common", device_name(a),
                     device_name(b));
            else if (one.host != other.host && c.op != CollectiveOp::kAllReduce)
                fail("exchange-vendor", "{} and {} are of two hosts, where the library sums alone",
                     device_name(a), device_name(b));
            else if (one.host == other.host && one.index == other.index &&
                     one.identity == other.identity)
                fail("exchange-vendor", "{} and {} are one card, which no library takes twice",
                     device_name(a), device_name(b));
        }
    }
}

// A library's form over nodes is of a sum of devices in several, none of which is here.
void PhaseWalk::check_library_form(const Collective& c) {
    if (c.by_library == SumForm::kRing) return;
    std::set<std::string> hosts;
    bool simulated = true;
    for (DeviceId d : c.group) {
        hosts.insert(plan_.machine.device(d).host);
        simulated = simulated && plan_.machine.device(d).kind == DeviceKind::kSim;
    }
    if (c.by_library < SumForm::kRing || c.path != Path::kVendor ||
        c.op != CollectiveOp::kAllReduce || hosts.size() < 2 || !simulated ||
        plan_.machine.fabric.empty())
        fail("exchange-form", "'{}' by a library over {} nodes, on '{}'",
             sum_form_name(c.by_library), hosts.size(), path_name(c.path));
}

// The library brings blocks of columns whole. With several rows they go through the receiver's
// exchange buffer.
void PhaseWalk::check_gather_room(const Collective& c) {
    const importer::Value& value = graph().value(placed(c.contributions[0]).value);
    if (value.shape.empty()) return;
    const Workload& w = plan_.workload;
    const int64_t rows = rows_of(value) == Rows::kOutputs ? w.max_outputs() : w.max_tokens();
    for (DeviceId member : c.group) {
        if (rows <= 1 || !is_card(plan_.machine.device(member).kind)) continue;
        int64_t needed = 0;
        for (PlacedId id : c.contributions)
            if (const PlacedValue& p = placed(id); p.device != member)
                needed = sum(needed, payload_bytes(p, false));
        const BufferId exchange = find_buffer(plan_, member, BufferRole::kExchange);
        const int64_t room = exchange.valid() ? plan_.buffer(exchange).size : 0;
        if (room < needed)
            fail("exchange-vendor", "{} has {} bytes for {} that the library brings",
                 device_name(member), room, needed);
    }
}

// Of the largest pass, or of this phase's.
int64_t PhaseWalk::payload_bytes(const PlacedValue& p, bool of_phase) const {
    const importer::Value& value = graph().value(p.value);
    const Workload& w = plan_.workload;
    int64_t elements = columns_of(p).size();
    if (!value.shape.empty() && value.kind != importer::ValueKind::kTensor)
        elements = product({elements, of_phase && !is_prefill_           ? w.batch
                                      : rows_of(value) == Rows::kOutputs ? w.max_outputs()
                                                                         : w.max_tokens()});
    return bytes_of(placed_dtype(plan_, p.value), elements);
}

// Each sender has room for what it sends at once: where the host takes it, or where peers read it.
void PhaseWalk::check_departures(const std::vector<PlacedId>& sent, Path path) {
    const bool by_peers = path == Path::kPeer;
    const BufferRole role = by_peers ? BufferRole::kPeerPayloads : BufferRole::kExchange;
    for (PlacedId id : sent) {
        const PlacedValue& p = placed(id);
        const int64_t needed = payload_bytes(p, by_peers);
        const BufferId buffer = find_buffer(plan_, p.device, role);
        const int64_t room = buffer.valid() ? plan_.buffer(buffer).size : 0;
        if (room < needed)
            fail("exchange-departures", "{} has {} bytes for {} that it sends at once",
                 device_name(p.device), room, needed);
    }
}

// What comes from other hosts has room beside one another, and goes no other way.
void PhaseWalk::check_arrivals(const std::vector<PlacedId>& sent,
                               const std::vector<DeviceId>& receivers) {
    for (DeviceId to : receivers) {
        int64_t needed = 0;
        for (PlacedId id : sent) {
            const PlacedValue& p = placed(id);
            if (plan_.machine.device(p.device).host == plan_.machine.device(to).host) continue;
            needed = sum(needed, payload_bytes(p, false));
        }
        const BufferId arrivals = find_buffer(plan_, to, BufferRole::kArrivals);
        const int64_t room = arrivals.valid() ? plan_.buffer(arrivals).size : 0;
        if (room < needed)
            fail("exchange-arrivals", "{} has {} bytes for {} that come from other hosts",
                 device_name(to), room, needed);
    }
}

// A norm is the last of an epilogue, behind the residual, and only kernels over the members' memory
// compute it.
bool PhaseWalk::check_norm(const Collective& c) {
    const auto is_norm = [&](OpId id) { return graph().op(id).kind == OpKind::kRmsNorm; };
    const auto norms = std::count_if(c.epilogue.begin(), c.epilogue.end(), is_norm);
    if (norms == 0) {
        if (!c.weights.empty())
            fail("collective-epilogue", "{} weights, and no norm", c.weights.size());
        return false;
    }
    if (norms > 1 || c.epilogue.size() != 2 || !is_norm(c.epilogue[1]) ||
        graph().op(c.epilogue[0]).kind != OpKind::kAdd)
        fail("collective-epilogue", "a norm follows the residual of a sum, and nothing follows it");
    if (c.path != Path::kPeer || c.two_phase)
        fail("collective-epilogue", "a sum in form '{}' that goes '{}' has no norm",
             sum_form_name(c.form()), path_name(c.path));
    return true;
}

// A group names each receiver once, in device order or (a ring's) in its own, with one output each,
// or two with a norm.
bool PhaseWalk::check_group(const Collective& c) {
    if (c.group.empty()) fail("collective-group", "no receiver");
    std::vector<DeviceId> order = c.group;
    if (c.path == Path::kVendor) std::sort(order.begin(), order.end());
    for (size_t i = 0; i + 1 < order.size(); ++i)
        if (order[i] >= order[i + 1])
            fail("collective-group", "receivers are not in device order, each once");
    const size_t results = check_norm(c) ? 2 : 1;
    bool sound = c.outputs.size() == results * c.group.size();
    if (!sound)
        fail("collective-group", "{} outputs for {} receivers{}", c.outputs.size(), c.group.size(),
             results == 2 ? ", each of which gets the sum and the normalised sum" : "");
    if (results == 2 && c.weights.size() != c.group.size()) {
        fail("weight-missing", "{} weights of a norm for {} members", c.weights.size(),
             c.group.size());
        sound = false;
    }
    if (c.contributions.empty()) {
        fail("collective-missing", "nothing is contributed");
        sound = false;
    }
    for (PlacedId id : c.contributions)
        if (sound && placed(id).value != placed(c.contributions[0]).value)
            fail("collective-value", "{} and {} are contributed to one",
                 value_name(placed(c.contributions[0]).value), value_name(placed(id).value));
    return sound;
}

// The contributions of an all-reduce hold each part of the summed axis once, and the bias once.
Known PhaseWalk::reduce(const Collective& c) {
    const PlacedValue& first = placed(c.contributions[0]);
    RangeSet summed;
    std::set<DeviceId> devices;
    Known sum{.columns = columns_of(first)};
    int biases = 0;
    for (PlacedId id : c.contributions) {
        const PlacedValue& p = placed(id);
        Known part = read_summand(id);
        std::string part_name = fmt::format("{} of {}", value_name(p.value), device_name(p.device));
        if (!p.partial) fail("collective-value", "{} is no summand", part_name);
        if (part.columns != sum.columns)
            fail("collective-box", "{} has columns {}, others {}", part_name,
                 range_text(part.columns), range_text(sum.columns));
        if (++reductions_[id.index()] > 1)
            fail("collective-twice", "{} was summed before", part_name);
        if (!devices.insert(p.device).second)
            fail("collective-twice", "{} is contributed twice", part_name);
        if (std::find(c.group.begin(), c.group.end(), p.device) == c.group.end())
            fail("collective-group", "{} contributes and is no member", device_name(p.device));
        if (part.source.valid()) {
            if (sum.source.valid() && sum.source != part.source)
                fail("collective-value", "{} comes from another operator", part_name);
            sum.source = part.source;
            if (summed.add(part.contraction))
                fail("collective-twice", "{} holds the part {} of the sum, and so does another",
                     part_name, range_text(part.contraction));
        }
        biases += part.has_bias;
    }
    if (!sum.source.valid()) return sum;
    const importer::Op& op = graph().op(sum.source);
    Range axis;
    if (foreign_op(op))  // it may sum without a weight
        axis = whole_columns(graph(), op.inputs[0]);
    else
        axis = {0, graph().weight(op.weights[0]).shape[op.kind == OpKind::kEmbedding ? 0 : 1]};
    if (!summed.covers(axis))
        fail("collective-missing", "the sum of {} over {} lacks a part; it has {}", op.name,
             range_text(axis), summed.ranges().empty() ? "none" : range_text(summed.ranges()[0]));
    bool has_bias = op.kind == OpKind::kLinear && op.as<importer::LinearAttrs>().has_bias;
    if (has_bias && biases != 1)
        fail("collective-bias", "the bias of {} is added {} times", op.name, biases);
    return Known{.columns = sum.columns};
}

// What runs on each member after the sum; each operator takes the running value and what else it
// needs from the member's own inputs.
void PhaseWalk::epilogue(const Collective& c, size_t member, const Known& reduced) {
    const DeviceId device = c.group[member];
    ValueId value = placed(c.contributions[0]).value;
    const size_t per_member = c.epilogue_inputs.size() / c.group.size();
    size_t next = member * per_member;
    for (OpId id : c.epilogue) {
        const importer::Op& op = graph().op(id);
        if (op.kind == OpKind::kRmsNorm && id == c.epilogue.back()) break;  // of the whole sum
        if (op.kind != OpKind::kAdd && op.kind != OpKind::kScale) {
            fail("collective-epilogue", "{} cannot follow a sum", op.name);
            return;
        }
        bool takes_value = std::find(op.inputs.begin(), op.inputs.end(), value) != op.inputs.end();
        if (!takes_value)
            fail("collective-epilogue", "{} does not take {}", op.name, value_name(value));
        for (ValueId input : op.inputs) {
            if (input == value) continue;
            if (next >= (member + 1) * per_member ||
                placed(c.epilogue_inputs[next]).value != input) {
                fail("collective-epilogue", "{} needs {} on {}", op.name, value_name(input),
                     device_name(device));
                continue;
            }
            Known other = read(c.epilogue_inputs[next++], device);
            if (other.columns != reduced.columns)
                fail("operand-sharding", "{} finds columns {} and {}", op.name,
                     range_text(reduced.columns), range_text(other.columns));
        }
        execute(id, device, reduced.columns);
        value = op.outputs[0];
    }
    if (next != (member + 1) * per_member)
        fail("collective-epilogue", "an input of {} is not used", device_name(device));
    write(c.outputs[member], value, device, Known{.columns = reduced.columns});
    if (!c.weights.empty()) norm(c, member, reduced.columns);
}

// What a member normalises is the sum it has just stored, by the whole weight in its own memory.
void PhaseWalk::norm(const Collective& c, size_t member, Range columns) {
    const OpId id = c.epilogue.back();
    const importer::Op& op = graph().op(id);
    if (op.kind != OpKind::kRmsNorm) return;  // reported
    const DeviceId device = c.group[member];
    const ValueId sum = placed(c.outputs[member]).value;
    if (op.inputs[0] != sum)
        fail("collective-epilogue", "{} does not take {}", op.name, value_name(sum));
    const WeightShard& shard = plan_.weights[c.weights[member].index()];
    trace_.weights_used[c.weights[member].index()] = true;
    if (op.weights.empty() || shard.weight != op.weights[0]) {
        fail("weight-missing", "{} needs its own weight on {}, and has {}", op.name,
             device_name(device), graph().weight(shard.weight).name);
    } else {
        if (shard.device != device)
            fail("weight-device", "{} on {} reads {} on {}", op.name, device_name(device),
                 graph().weight(shard.weight).name, device_name(shard.device));
        if (shard.rows != Range{0, graph().weight(shard.weight).shape[0]})
            fail("weight-box", "{} needs its whole weight, and has {}", op.name,
                 range_text(shard.rows));
    }
    const Range all = whole_columns(graph(), op.inputs[0]);
    const int64_t group = op.as<importer::RmsNormAttrs>().group;
    if (columns != all || (group != 0 && group != all.size()))
        fail("operand-sharding", "{} normalises whole rows, and finds columns {} in groups of {}",
             op.name, range_text(columns), group);
    execute(id, device, columns);
    write(c.outputs[c.group.size() + member], op.outputs[0], device, Known{.columns = columns});
}

void PhaseWalk::all_reduce(const Collective& c) {
    Known reduced = reduce(c);
    check_bytes(c.bytes, placed(c.contributions[0]).value, reduced.columns);
    if (c.epilogue_inputs.size() % c.group.size() != 0)
        fail("collective-epilogue", "{} inputs for {} members", c.epilogue_inputs.size(),
             c.group.size());
    else
        for (size_t i = 0; i < c.group.size(); ++i) epilogue(c, i, reduced);
}

// Disjoint boxes, which together are what each receiver gets.
void PhaseWalk::all_gather(const Collective& c) {
    const ValueId value = placed(c.contributions[0]).value;
    RangeSet gathered;
    for (PlacedId id : c.contributions) {
        const PlacedValue& p = placed(id);
        Known part = read(id, p.device);
        if (gathered.add(part.columns))
            fail("collective-twice", "columns {} of {} come from {} and from another",
                 range_text(part.columns), value_name(value), device_name(p.device));
    }
    if (!c.epilogue.empty() || !c.epilogue_inputs.empty() || !c.weights.empty()) {
        fail("collective-epilogue", "nothing can follow an all_gather");
        return;
    }
    for (size_t i = 0; i < c.group.size(); ++i) {
        Range columns = columns_of(placed(c.outputs[i]));
        if (!gathered.covers(columns))
            fail("collective-missing", "{} of {} on {} is not contributed in full",
                 range_text(columns), value_name(value), device_name(c.group[i]));
        // The member has its own box already.
        write(c.outputs[i], value, c.group[i], Known{.columns = columns}, true);
    }
}

void PhaseWalk::collective(const Collective& c) {
    if (!check_group(c)) return;
    if (c.path == Path::kPeer) {
        std::vector<DeviceId> devices = c.group;
        for (PlacedId id : c.contributions) devices.push_back(placed(id).device);
        check_peers(devices);
    }
    if (c.two_phase && (c.op != CollectiveOp::kAllReduce || c.path == Path::kVendor))
        fail("exchange-path", "an {} that goes '{}' has no two phases", collective_op_name(c.op),
             path_name(c.path));
    if (c.path == Path::kVendor)
        check_vendor(c);
    else {
        check_arrivals(c.contributions, c.group);
        check_departures(c.contributions, c.path);
    }
    check_library_form(c);
    if (c.op == CollectiveOp::kAllReduce) return all_reduce(c);
    if (c.path == Path::kVendor) check_gather_room(c);
    all_gather(c);
}

}  // namespace cleave::planner::verify
