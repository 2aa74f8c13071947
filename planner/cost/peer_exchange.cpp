// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/peer_exchange.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "planner/analysis/storage.h"
#include "planner/plan/plan_queries.h"
#include "runtime/base/errors.h"

namespace cleave::planner {

namespace {

// A channel's counters are words of 64 devices at most: what a block's first threads look after.
constexpr size_t kMostDevices = 64;
constexpr int64_t kLoadBytes = 16, kMostThreads = 256;
constexpr int64_t kTagSteps = int64_t{1} << 22;

bool is_direct(const Link* link) {
    return link && (link->kind == LinkKind::kSameMemory || link->kind == LinkKind::kNvlink ||
                    link->kind == LinkKind::kXgmi || link->peer_access);
}

bool same_vendor(const DeviceInfo& a, const DeviceInfo& b) {
    return a.kind == b.kind && a.arch.starts_with("gfx") == b.arch.starts_with("gfx");
}

}  // namespace

bool reach_each_other(const Machine& machine, std::span<const DeviceId> group) {
    if (machine.devices.size() > kMostDevices) return false;
    for (DeviceId a : group) {
        if (machine.device(a).limits.warp_width <= 1) return false;
        for (DeviceId b : group)
            if (a != b && (!same_vendor(machine.device(a), machine.device(b)) ||
                           !is_direct(machine.link(a, b))))
                return false;
    }
    return true;
}

bool has_vendor_library(const Machine& machine, std::span<const DeviceId> group) {
    std::set<std::pair<std::string, int>> cards;
    for (DeviceId id : group) {
        const DeviceInfo &d = machine.device(id), &first = machine.device(group.front());
        if (!is_card(d.kind) || d.collectives.empty() || d.kind != first.kind ||
            d.host != first.host || d.collectives != first.collectives ||
            !cards.emplace(d.identity, d.index).second)
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
    if (const Transfer* t = step.transfer()) return t->route == Route::kPeer;
    const Collective* c = step.collective();
    return c && c->transport == Transport::kPeer;
}

int64_t peer_slice(const Plan& plan, DeviceId device) {
    for (const Buffer& b : plan.buffers)
        if (b.device == device && b.name == "staging.peers")
            return b.size / peer_channels(plan.machine, device) / kLoadBytes * kLoadBytes;
    throw InternalError(fmt::format("the plan has no buffer 'staging.peers' on {}",
                                    plan.machine.device(device).name));
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

int64_t peer_tag(bool is_prefill, StepId step) {
    CHECK(static_cast<int64_t>(step.index()) < kMeetingTag)
        << "step " << step.index() << " of a phase with exchanges by peer memory";
    return static_cast<int64_t>(step.index()) + (is_prefill ? kTagSteps : 0);
}

PeerStep peer_step(int64_t tag) {
    return {tag >= kTagSteps, StepId(static_cast<size_t>(tag % kTagSteps))};
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
    payload.per_output = !value.shape.empty() && value.shape.front().symbol == "num_outputs";
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
    const int64_t loads = ((by_rows ? cut.row_bytes : most) + kLoadBytes - 1) / kLoadBytes;
    cut.threads = std::clamp((loads + warp - 1) / warp * warp, std::max<int64_t>(warp, 64),
                             by_rows ? kPeerRowThreads : kMostThreads);
    cut.unit = by_rows ? cut.row_bytes : cut.threads * kLoadBytes;
    return cut;
}

}  // namespace cleave::planner
