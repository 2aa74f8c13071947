// SPDX-License-Identifier: Apache-2.0
// Sums and gathers by the vendor's library: they go on the members' streams, the residual's kernel
// after a sum, and nobody on the host waits for anybody. They stay outside captured decode, which
// goes on after them. Libraries allow captures (NCCL user guide, "Using NCCL with CUDA Graphs":
// from 2.9 on), but the same page warns of deadlocks where one process drives several cards, and
// ncclCommAbort waits until every graph that holds one of the communicator's operations is
// destroyed (src/init.cc, commDestroySync): after a fault, whose graphs may still run, nothing
// would end.
#include <algorithm>

#include "runtime/device/async_device.h"
#include "runtime/exchange/communication.h"
#include "runtime/load/vendor_groups.h"

namespace cleave::runtime {

namespace {

using namespace planner;

class VendorAllReduce : public Communication {
public:
    VendorAllReduce(const CommunicationContext& context, const Collective& step)
        : group_(step.group) {
        for (size_t m = 0; m < group_.size(); ++m) {
            const bool here = !context.ranks || context.ranks->here(group_[m]);
            ranks_.push_back(here ? &context.vendor_groups->rank(group_, group_[m]) : nullptr);
            outputs_.push_back(context.arenas.view(context.phase, step.outputs[m]));
            sources_.push_back(0);
            launches_.push_back(context.launches[group_[m].index()]);
            CLEAVE_CHECK(launches_.back().size() ==
                         (here && !step.epilogue_inputs.empty() ? 1u : 0u))
                << context.label << " on " << context.plan.machine.device(group_[m]).name;
        }
        for (PlacedId id : step.contributions) {
            const PlacedView view = context.arenas.view(context.phase, id);
            const int member = position_of(context.phase.values[id.index()].device, group_);
            CLEAVE_CHECK(member >= 0 && view.row_bytes() == outputs_[0].row_bytes())
                << context.label;
            sources_[static_cast<size_t>(member)] = view.address;
        }
    }

    std::vector<DeviceId> participants() const override {
        std::vector<DeviceId> devices = group_;
        std::sort(devices.begin(), devices.end());
        return devices;
    }
    Path path() const override { return Path::kVendor; }

    int64_t take_part(const Participant& self, const PassShape& shape, uint64_t) override {
        const auto m = static_cast<size_t>(position_of(self.id, group_));
        const PlacedView& out = outputs_[m];
        const int64_t rows = out.rows(shape.num_tokens, shape.num_outputs);
        const int64_t bytes = rows * out.row_bytes();
        DeviceAddress source = sources_[m];
        if (!source) {  // a member without work adds nothing
            self.device.fill(out.address, bytes, 0);
            source = out.address;
        }
        ranks_[m]->all_reduce(source, out.address, rows * out.columns.size(), out.dtype);
        for (BoundLaunch* bound : launches_[m]) launch(self.device, *bound, shape);
        // A ring's bytes, 2 (n - 1) payloads in all, as the plan counts them.
        const auto n = static_cast<int64_t>(group_.size()), i = static_cast<int64_t>(m);
        const int64_t all = 2 * (n - 1) * bytes;
        return all * (i + 1) / n - all * i / n;
    }

    void wake() override {}

private:
    std::vector<DeviceId> group_;
    std::vector<CollectiveRank*> ranks_;  // by member, as all below; null of other processes
    std::vector<PlacedView> outputs_;
    std::vector<DeviceAddress> sources_;  // 0: none
    std::vector<std::vector<BoundLaunch*>> launches_;
};

// Column blocks side by side, as of the staged gather. The library carries what lies in one piece:
// a block that is several rows of a wider value comes into the receiver's exchange buffer, and a
// copy on the stream puts it in its place.
class VendorGather : public Communication {
public:
    VendorGather(const CommunicationContext& context, const Collective& step)
        : members_(step.group) {
        for (PlacedId id : step.contributions) {
            contributors_.push_back(context.phase.values[id.index()].device);
            blocks_.push_back(context.arenas.view(context.phase, id));
        }
        for (PlacedId id : step.outputs) outputs_.push_back(context.arenas.view(context.phase, id));
        for (DeviceId member : members_) spaces_.push_back(context.arenas.exchange(member));
        devices_ = members_;
        devices_.insert(devices_.end(), contributors_.begin(), contributors_.end());
        std::sort(devices_.begin(), devices_.end());
        devices_.erase(std::unique(devices_.begin(), devices_.end()), devices_.end());
        const VendorGroups& groups = *context.vendor_groups;
        for (DeviceId device : devices_) ranks_.push_back(&groups.rank(devices_, device));
        for (DeviceId device : members_) member_numbers_.push_back(groups.number(devices_, device));
        for (DeviceId device : contributors_)
            contributor_numbers_.push_back(groups.number(devices_, device));
    }

    std::vector<DeviceId> participants() const override { return devices_; }
    Path path() const override { return Path::kVendor; }

    int64_t take_part(const Participant& self, const PassShape& shape, uint64_t) override {
        const int64_t rows = blocks_[0].rows(shape.num_tokens, shape.num_outputs);
        std::vector<CollectiveRank::Message> sends, receives;
        const int c = position_of(self.id, contributors_), m = position_of(self.id, members_);
        if (c >= 0)
            for (size_t i = 0; i < members_.size(); ++i) {
                const PlacedView& block = blocks_[static_cast<size_t>(c)];
                if (members_[i] != self.id)
                    sends.push_back({member_numbers_[i], block.address, rows * block.row_bytes()});
            }
        int64_t received = 0;
        const std::vector<Arrival> arrivals =
            m >= 0 ? arrivals_at(static_cast<size_t>(m), rows) : std::vector<Arrival>();
        for (const Arrival& arrival : arrivals) {
            if (contributors_[arrival.block] == self.id) continue;
            const int64_t bytes = rows * blocks_[arrival.block].row_bytes();
            receives.push_back({contributor_numbers_[arrival.block], arrival.at, bytes});
            received += bytes;
        }
        ranks_[static_cast<size_t>(position_of(self.id, devices_))]->exchange(sends, receives);
        for (const Arrival& arrival : arrivals) {
            const int64_t bytes = blocks_[arrival.block].row_bytes();
            if (arrival.at != arrival.place)
                self.device.stream()->copy_within(
                    arrival.at, arrival.place,
                    {rows, bytes, bytes, outputs_[static_cast<size_t>(m)].row_bytes()});
        }
        return received;
    }

    void wake() override {}

private:
    // Where a block arrives on a member, and where it belongs.
    struct Arrival {
        size_t block;
        DeviceAddress at, place;
    };
    std::vector<Arrival> arrivals_at(size_t m, int64_t rows) const {
        const PlacedView& out = outputs_[m];
        std::vector<Arrival> arrivals;
        int64_t used = 0;
        for (size_t c = 0; c < blocks_.size(); ++c) {
            const PlacedView& block = blocks_[c];
            const int64_t columns = block.columns.begin - out.columns.begin;
            Arrival arrival{
                c, block.address,
                out.address + static_cast<DeviceAddress>(dtype_bytes(out.dtype, columns))};
            if (contributors_[c] != members_[m]) {
                arrival.at = arrival.place;
                if (rows > 1 && block.row_bytes() != out.row_bytes()) {
                    arrival.at = spaces_[m].address + static_cast<DeviceAddress>(used);
                    used += rows * block.row_bytes();
                }
            }
            arrivals.push_back(arrival);
        }
        CLEAVE_CHECK(used <= spaces_[m].bytes)
            << used << " bytes arrive where " << spaces_[m].bytes << " are";
        return arrivals;
    }

    std::vector<DeviceId> members_, contributors_, devices_;
    std::vector<CollectiveRank*> ranks_;                     // by device
    std::vector<int> member_numbers_, contributor_numbers_;  // by which the ranks know them
    std::vector<PlacedView> blocks_, outputs_;               // by contributor, by member
    std::vector<ExchangeArea> spaces_;                       // by member
};

}  // namespace

std::unique_ptr<Communication> make_vendor_gather(const CommunicationContext& context,
                                                  const Collective& step) {
    CLEAVE_CHECK(context.vendor_groups) << context.label << " without its library";
    return std::make_unique<VendorGather>(context, step);
}

std::unique_ptr<Communication> make_vendor_all_reduce(const CommunicationContext& context,
                                                      const Collective& step) {
    CLEAVE_CHECK(context.vendor_groups) << context.label << " without its library";
    return std::make_unique<VendorAllReduce>(context, step);
}

}  // namespace cleave::runtime
