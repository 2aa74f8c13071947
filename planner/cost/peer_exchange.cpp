// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/peer_exchange.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>

#include "planner/machine/vendor.h"
#include "planner/plan/plan_queries.h"
#include "runtime/base/errors.h"

namespace cleave::planner {

namespace {

constexpr int64_t kLoadBytes = 16, kMostThreads = 256;

bool is_direct(const Link* link) {
    return link &&
           (link->kind == LinkKind::kSameMemory || is_own_link(link->kind) || link->peer_access);
}

bool same_vendor(const DeviceInfo& a, const DeviceInfo& b) {
    return a.kind == b.kind && vendor_of(a) == vendor_of(b);
}

}  // namespace

bool reach_each_other(const Machine& machine, std::span<const DeviceId> group) {
    if (std::ssize(machine.devices) > kMostPeerDevices) return false;
    for (DeviceId a : group) {
        if (!machine.device(a).limits.has_warps()) return false;
        for (DeviceId b : group)
            if (a != b && (!same_vendor(machine.device(a), machine.device(b)) ||
                           !is_direct(machine.link(a, b))))
                return false;
    }
    return true;
}

bool has_vendor_library(const Machine& machine, std::span<const DeviceId> group) {
    std::set<std::tuple<std::string, std::string, int>> cards;
    for (DeviceId id : group) {
        const DeviceInfo &d = machine.device(id), &first = machine.device(group.front());
        if (!is_card(d.kind) || d.collectives.empty() || d.kind != first.kind ||
            d.collectives != first.collectives ||
            !cards.emplace(d.host, d.identity, d.index).second)
            return false;
    }
    return group.size() > 1;
}

int64_t peer_channels(const Machine& machine, DeviceId id) {
    const DeviceInfo& device = machine.device(id);
    int64_t sharers = 1;
    if (is_card(device.kind))
        sharers = std::count_if(machine.devices.begin(), machine.devices.end(),
                                [&](const DeviceInfo& other) {
                                    return other.kind == device.kind && other.host == device.host &&
                                           other.index == device.index;
                                });
    return std::clamp<int64_t>(device.limits.num_compute_units / (2 * sharers), 1, kPeerChannels);
}

bool goes_by_peers(const Step& step) {
    if (const Transfer* t = step.transfer()) return t->path == Path::kPeer;
    const Collective* c = step.collective();
    return c && c->path == Path::kPeer;
}

int64_t peer_slice(const Plan& plan, DeviceId device) {
    const BufferId payloads = find_buffer(plan, device, BufferRole::kPeerPayloads);
    CLEAVE_CHECK(payloads.valid())
        << "the plan has no room for payloads of " << plan.machine.device(device).name;
    return plan.buffer(payloads).size / peer_channels(plan.machine, device) / kLoadBytes *
           kLoadBytes;
}

std::vector<DeviceId> peers_of(const Plan& plan, DeviceId device) {
    std::set<DeviceId> peers;
    for (const Phase* phase : {&plan.prefill, &plan.decode})
        for (const Step& step : phase->steps) {
            if (!goes_by_peers(step)) continue;
            const std::vector<DeviceId> group = step_devices(*phase, step);
            if (std::find(group.begin(), group.end(), device) != group.end())
                peers.insert(group.begin(), group.end());
        }
    peers.erase(device);
    return {peers.begin(), peers.end()};
}

std::vector<PlacedId> sent_values(const Step& step) {
    if (const Transfer* t = step.transfer()) return {t->source};
    if (const Collective* c = step.collective()) return c->contributions;
    return {};
}

PeerPayload peer_payload(const Plan& plan, const Phase& phase, bool is_prefill, PlacedId id) {
    const PlacedValue& placed = phase.values[id.index()];
    const importer::Value& value = plan.graph.value(placed.value);
    const Workload& w = plan.workload;
    PeerPayload payload;
    payload.per_output = rows_of(value) == Rows::kOutputs;
    Range columns = placed.box.back();
    if (columns.end == kWhole) columns.end = value.shape.back().value;
    payload.row_bytes = dtype_bytes(placed_dtype(value, w), columns.size());
    payload.most_rows = !is_prefill          ? w.batch
                        : payload.per_output ? w.max_outputs()
                                             : w.max_tokens();
    return payload;
}

PeerCut peer_cut(const Plan& plan, const Phase& phase, bool is_prefill, const Step& step) {
    PeerCut cut;
    int64_t most = 0;
    for (PlacedId id : sent_values(step)) {
        const PeerPayload payload = peer_payload(plan, phase, is_prefill, id);
        if (payload.most_bytes() < most) continue;
        most = payload.most_bytes();
        cut.row_bytes = payload.row_bytes;
        cut.per_output = payload.per_output;
    }
    cut.channels = kPeerChannels;
    int64_t warp = 1;
    for (DeviceId d : step_devices(phase, step)) {
        warp = std::max(warp, plan.machine.device(d).limits.warp_width);
        cut.channels = std::min(cut.channels, peer_channels(plan.machine, d));
    }
    const Collective* c = step.collective();
    const bool by_rows = c && !c->weights.empty();
    // Whole warps, and one turn of loads for a small payload.
    const int64_t loads = ceil_div(by_rows ? cut.row_bytes : most, kLoadBytes);
    cut.threads = std::clamp(round_up(loads, warp), std::max<int64_t>(warp, 64),
                             by_rows ? kPeerRowThreads : kMostThreads);
    cut.unit = by_rows ? cut.row_bytes : cut.threads * kLoadBytes;
    return cut;
}

}  // namespace cleave::planner
