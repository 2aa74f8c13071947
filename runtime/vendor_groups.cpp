// SPDX-License-Identifier: Apache-2.0
#include "runtime/vendor_groups.h"

#include <algorithm>

#include "planner/plan_views.h"
#include "runtime/base/errors.h"
#include "runtime/device_stream.h"

namespace cleave::runtime {

using namespace planner;

namespace {

// Ranks of one process read each other's buffers in place where their cards can (NCCL, src/transport/p2p.cc), and open for
// it what is plain memory, not a pool's.
void give_access(const std::vector<DeviceId>& group,
                 std::span<const std::unique_ptr<Device>> devices) {
    for (DeviceId a : group)
        for (DeviceId b : group)
            if (a != b && devices[a.index()]->supports_peer_copy(*devices[b.index()]))
                devices[a.index()]->enable_peer_access(*devices[b.index()]);
}

std::vector<DeviceId> in_order(std::vector<DeviceId> devices) {
    std::sort(devices.begin(), devices.end());
    return devices;
}

}  // namespace

VendorGroups::VendorGroups(const Plan& plan, std::span<const std::unique_ptr<Device>> devices,
                           int limit_seconds, const CancelToken* cancel) {
    for (bool is_prefill : {true, false})
        for (const Step& step : plan.phase(is_prefill).steps) {
            const Collective* c = step.collective();
            if (!c || c->transport != Transport::kVendor) continue;
            // The first step's order, which may be a ring's.
            std::vector<DeviceId> group = step_devices(plan.phase(is_prefill), step);
            Joined& joined = groups_[in_order(group)];
            if (joined.group) continue;
            joined.members = std::move(group);
            const planner::Device& first = plan.machine.device(joined.members.front());
            auto& library = libraries_[first.kind];
            if (!library) {
                const FoundCollectives found = find_collectives(first.kind);
                if (!found.library)
                    throw UserError(
                        "the plan was made with {}, by which {} and its peers exchange values, and "
                        "no such library is found here: {}; install it, or make the plan anew on "
                        "this machine",
                        first.collectives, first.name, found.reason);
                library = found.library;
            }
            give_access(joined.members, devices);
            std::vector<CollectiveMember> members;
            for (DeviceId id : joined.members) {
                DeviceStream* stream = devices[id.index()]->stream();
                const planner::Device& info = plan.machine.device(id);
                CHECK(stream) << info.name << " has no stream for " << library->library();
                members.push_back({info.name, fmt::format("{} {}", info.identity, info.index),
                                   [stream] { stream->make_current(); }, stream->native_stream()});
            }
            joined.group = library->connect(members, {limit_seconds, cancel});
        }
}

const VendorGroups::Joined& VendorGroups::joined(std::vector<DeviceId> devices) const {
    return groups_.at(in_order(std::move(devices)));
}

int VendorGroups::number(const std::vector<DeviceId>& devices, DeviceId device) const {
    const std::vector<DeviceId>& members = joined(devices).members;
    const auto found = std::find(members.begin(), members.end(), device);
    CHECK(found != members.end()) << "a device that is not of the group";
    return static_cast<int>(found - members.begin());
}

CollectiveRank& VendorGroups::rank(const std::vector<DeviceId>& devices, DeviceId device) const {
    return joined(devices).group->rank(number(devices, device));
}

void VendorGroups::abort() noexcept {
    for (auto& [devices, joined] : groups_)
        if (joined.group) joined.group->abort();
}

}  // namespace cleave::runtime
