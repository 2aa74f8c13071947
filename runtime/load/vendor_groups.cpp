// SPDX-License-Identifier: Apache-2.0
#include "runtime/load/vendor_groups.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>

#include "planner/plan/plan_queries.h"
#include "runtime/base/errors.h"
#include "runtime/base/threads.h"
#include "runtime/device/async_device.h"
#include "runtime/device/bounded_waits.h"

namespace cleave::runtime {

using namespace planner;

namespace {

// Ranks of one process read each other's buffers in place where their cards can (NCCL,
// src/transport/p2p.cc), and open for it what is plain memory, not a pool's.
void give_access(const std::vector<DeviceId>& group,
                 std::span<const std::unique_ptr<Device>> devices) {
    for (DeviceId a : group)
        for (DeviceId b : group) {
            Device *one = devices[a.index()].get(), *other = devices[b.index()].get();
            if (one && other && a != b && one->supports_peer_copy(*other))
                one->enable_peer_access(*other);
        }
}

// By MPI from the rank of the group's first card to all others that have one of its cards.
std::string common_id(const CollectiveLibrary& library, const Machine& machine,
                      const std::vector<DeviceId>& members, const DeviceRanks& ranks) {
    const int maker = ranks.rank(members.front());
    if (!ranks.here(members.front())) return ranks.job->receive(maker, Message::kLibrary);
    std::string id = library.new_id(machine.device(members.front()).name);
    std::set<int> others;
    for (DeviceId member : members)
        if (!ranks.here(member)) others.insert(ranks.rank(member));
    for (int other : others) ranks.job->send(other, Message::kLibrary, id);
    return id;
}

std::vector<DeviceId> in_order(std::vector<DeviceId> devices) {
    std::sort(devices.begin(), devices.end());
    return devices;
}

// One thread a member, as the library may let none go on before all have come. The first failure
// ends the others' waits.
template <class Act>
void together(CollectiveGroup& group, const std::vector<Device*>& members,
              const CollectiveOptions& options, Act&& act) {
    std::mutex mutex;
    std::exception_ptr error;
    std::atomic<bool> failed{false};
    const auto stop = [&] {
        if (failed) throw DeviceError("an exchange", "another rank has failed", "a peer");
    };
    Threads threads([&] {
        failed = true;
        group.abort();
    });
    for (size_t m = 0; m < members.size(); ++m)
        threads.start([&, m] {
            try {
                const BoundedWaits bounded(*members[m], "its first exchange with its peers",
                                           options.limit_seconds, options.cancel, {stop, {}});
                act(m);
            } catch (...) {
                {
                    const std::lock_guard lock(mutex);
                    if (!error) error = std::current_exception();
                }
                failed = true;
                group.abort();
            }
        });
    threads.join();
    if (error) std::rethrow_exception(error);
}

}  // namespace

VendorGroups::VendorGroups(const Plan& plan, Drivers& drivers,
                           std::span<const std::unique_ptr<Device>> devices,
                           const DeviceRanks& ranks, const Arenas& arenas,
                           const CollectiveOptions& options) {
    find_groups(plan, arenas);
    for (auto& [ids, joined] : groups_)
        for (size_t m = 0; m < joined.members.size(); ++m)
            if (devices[joined.members[m].index()]) joined.here.push_back(m);
    std::erase_if(groups_, [&](const auto& group) { return group.second.here.empty(); });
    if (groups_.empty()) return;
    for (const auto& [ids, joined] : groups_) {
        const planner::DeviceInfo& first = plan.machine.device(joined.members.front());
        const FoundCollectives& found = drivers.collectives(first.kind);
        if (!found.library)
            throw UserError(
                "the plan was made with {}, by which {} and its peers exchange values, and "
                "no such library is found here: {}; install it, or make the plan anew on "
                "this machine",
                first.collectives, first.name, found.reason);
        if (joined.here.size() < joined.members.size() &&
            !first.collectives.ends_with(" " + found.library->version()))
            throw UserError(
                "the plan was made with {}, by which {} exchanges values with cards of other "
                "hosts, "
                "and {} is of version {} here; install one version on all hosts, or make the plan "
                "anew on them",
                first.collectives, first.name, found.library->library(), found.library->version());
        libraries_[first.kind] = found.library;
    }
    LibraryAccount account(plan, devices);
    try {
        for (auto& [ids, joined] : groups_) open(plan, devices, ranks, options, joined);
        for (auto& [ids, joined] : groups_) rehearse(devices, arenas, options, joined);
    } catch (const CollectiveError& failure) {
        abort();
        account.rethrow(failure);
    } catch (...) {
        abort();  // other hosts may never come to the end of what they began
        throw;
    }
    account.close();
    memory_ = account.memory();
}

void VendorGroups::find_groups(const Plan& plan, const Arenas& arenas) {
    const Workload& w = plan.workload;
    for (bool is_prefill : {true, false}) {
        const Phase& phase = plan.phase(is_prefill);
        for (const Step& step : phase.steps) {
            const Collective* c = step.collective();
            if (!c || c->path != Path::kVendor) continue;
            // The first step's order, which may be a ring's.
            std::vector<DeviceId> group = step_devices(phase, step);
            Joined& joined = groups_[in_order(group)];
            if (joined.members.empty()) joined.members = std::move(group);
            if (c->op == CollectiveOp::kAllGather) {
                for (PlacedId id : c->contributions)
                    for (DeviceId to : c->group)
                        if (const DeviceId from = phase.values[id.index()].device; from != to)
                            joined.messages.emplace(from, to);
                continue;
            }
            const PlacedView view = arenas.view(phase, c->outputs.front());
            const int64_t rows = is_prefill ? view.rows(w.max_tokens(), w.max_outputs()) : w.batch;
            Sum sum{{}, rows * view.columns.size(), view.dtype};
            for (size_t m = 0; m < c->group.size(); ++m)
                sum.values[c->group[m]] = arenas.view(phase, c->outputs[m]).address;
            Sum one = sum;
            one.count = view.columns.size();
            if (!joined.largest || joined.largest->count < sum.count) joined.largest = sum;
            if (!joined.smallest || joined.smallest->count > one.count) joined.smallest = one;
        }
    }
}

void VendorGroups::open(const Plan& plan, std::span<const std::unique_ptr<Device>> devices,
                        const DeviceRanks& ranks, const CollectiveOptions& options,
                        Joined& joined) const {
    const auto& library = libraries_.at(plan.machine.device(joined.members.front()).kind);
    give_access(joined.members, devices);
    std::vector<CollectiveMember> members;
    for (size_t m : joined.here) {
        const DeviceId id = joined.members[m];
        DeviceStream* stream = devices[id.index()]->stream();
        const planner::DeviceInfo& info = plan.machine.device(id);
        CLEAVE_CHECK(stream) << info.name << " has no stream for " << library->library();
        members.push_back({info.name, fmt::format("{} {}", info.identity, info.index),
                           [stream] { stream->make_current(); }, stream->native_stream(),
                           static_cast<int>(m)});
    }
    joined.group = library->join(members, static_cast<int>(joined.members.size()),
                                 common_id(*library, plan.machine, joined.members, ranks), options);
}

// All zeros, so that every word that is read is a number.
void VendorGroups::rehearse(std::span<const std::unique_ptr<Device>> devices, const Arenas& arenas,
                            const CollectiveOptions& options, Joined& joined) {
    std::vector<Device*> members;
    for (size_t m : joined.here) members.push_back(devices[joined.members[m].index()].get());
    together(*joined.group, members, options, [&](size_t h) {
        const DeviceId self = joined.members[joined.here[h]];
        Device& device = *members[h];
        CollectiveRank& rank = joined.group->rank(static_cast<int>(joined.here[h]));
        for (const std::optional<Sum>* sum : {&joined.largest, &joined.smallest}) {
            if (!*sum) continue;
            const DeviceAddress values = (*sum)->values.at(self);
            device.fill(values, dtype_bytes((*sum)->dtype, (*sum)->count), 0);
            rank.all_reduce(values, values, (*sum)->count, (*sum)->dtype);
        }
        // A message's size does not matter: the library connects two ranks on all channels that
        // they may ever use.
        const BatchAddresses& batch = arenas.batch(self);
        constexpr int64_t kBytes = sizeof(int32_t);
        std::vector<CollectiveRank::Message> sends, receives;
        for (size_t other = 0; other < joined.members.size(); ++other) {
            const int peer = static_cast<int>(other);
            if (joined.messages.count({self, joined.members[other]}))
                sends.push_back({peer, batch.token_ids, kBytes});
            if (joined.messages.count({joined.members[other], self}))
                receives.push_back({peer, batch.positions, kBytes});
        }
        if (!joined.messages.empty()) {
            device.fill(batch.token_ids, kBytes, 0);
            rank.exchange(sends, receives);
        }
        device.synchronize();
        rank.check();
    });
}

const VendorGroups::Joined& VendorGroups::joined(std::vector<DeviceId> devices) const {
    return groups_.at(in_order(std::move(devices)));
}

int VendorGroups::number(const std::vector<DeviceId>& devices, DeviceId device) const {
    const std::vector<DeviceId>& members = joined(devices).members;
    const auto found = std::find(members.begin(), members.end(), device);
    CLEAVE_CHECK(found != members.end()) << "a device that is not of the group";
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
