// SPDX-License-Identifier: Apache-2.0
#include "runtime/vendor_groups.h"

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

}  // namespace

VendorGroups::VendorGroups(const Plan& plan, std::span<const std::unique_ptr<Device>> devices,
                           int limit_seconds, const CancelToken* cancel) {
    for (bool is_prefill : {true, false})
        for (const Step& step : plan.phase(is_prefill).steps) {
            const Collective* c = step.collective();
            if (!c || c->transport != Transport::kVendor || groups_.count(c->group)) continue;
            const planner::Device& first = plan.machine.device(c->group.front());
            auto& library = libraries_[first.kind];
            if (!library) {
                const FoundCollectives found = find_collectives(first.kind);
                if (!found.library)
                    throw UserError(
                        "the plan was made with {}, by which {} and its peers sum, and no such "
                        "library is found here: {}; install it, or make the plan anew on this "
                        "machine",
                        first.collectives, first.name, found.reason);
                library = found.library;
            }
            give_access(c->group, devices);
            std::vector<CollectiveMember> members;
            for (DeviceId id : c->group) {
                DeviceStream* stream = devices[id.index()]->stream();
                const planner::Device& info = plan.machine.device(id);
                CHECK(stream) << info.name << " has no stream for " << library->library();
                members.push_back({info.name, fmt::format("{} {}", info.identity, info.index),
                                   [stream] { stream->make_current(); }, stream->native_stream()});
            }
            groups_[c->group] = library->connect(members, {limit_seconds, cancel});
        }
}

CollectiveRank& VendorGroups::rank(const std::vector<DeviceId>& group, size_t rank) const {
    return groups_.at(group)->rank(static_cast<int>(rank));
}

void VendorGroups::abort() noexcept {
    for (auto& [members, group] : groups_) group->abort();
}

}  // namespace cleave::runtime
