// SPDX-License-Identifier: Apache-2.0
// An all-reduce by the vendor's library: it goes on the members' streams, the residual's kernel after it, and nobody on the
// host waits for anybody. It stays outside captured decode, which goes on after it. Libraries allow captures (NCCL user guide,
// "Using NCCL with CUDA Graphs": from 2.9 on), but the same page warns of deadlocks where one process drives several cards, and
// ncclCommAbort waits until every graph that holds one of the communicator's operations is destroyed (src/init.cc,
// commDestroySync): after a fault, whose graphs may still run, nothing would end.
#include <algorithm>

#include "runtime/communicate/communication.h"
#include "runtime/vendor_groups.h"

namespace cleave::runtime {

namespace {

using namespace planner;

class VendorAllReduce : public Communication {
public:
    VendorAllReduce(const CommunicationContext& context, const Collective& step)
        : group_(step.group), groups_(*context.vendor_groups) {
        for (size_t m = 0; m < group_.size(); ++m) {
            outputs_.push_back(context.arenas.view(context.phase, step.outputs[m]));
            sources_.push_back(0);
            launches_.push_back(context.launches[group_[m].index()]);
            CHECK(launches_.back().size() == (step.epilogue_inputs.empty() ? 0u : 1u))
                << context.label << " on " << context.plan.machine.device(group_[m]).name;
        }
        for (PlacedId id : step.contributions) {
            const PlacedView view = context.arenas.view(context.phase, id);
            const int member = position_of(context.phase.values[id.index()].device, group_);
            CHECK(member >= 0 && view.row_bytes() == outputs_[0].row_bytes()) << context.label;
            sources_[static_cast<size_t>(member)] = view.address;
        }
    }

    std::vector<DeviceId> participants() const override {
        std::vector<DeviceId> devices = group_;
        std::sort(devices.begin(), devices.end());
        return devices;
    }
    Transport transport() const override { return Transport::kVendor; }

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
        groups_.rank(group_, m).all_reduce(source, out.address, rows * out.columns.size(),
                                           out.dtype);
        for (BoundLaunch* bound : launches_[m]) launch(self.device, *bound, shape);
        // A ring's bytes, 2 (n - 1) payloads in all, as the plan counts them.
        const auto n = static_cast<int64_t>(group_.size()), i = static_cast<int64_t>(m);
        const int64_t all = 2 * (n - 1) * bytes;
        return all * (i + 1) / n - all * i / n;
    }

    void wake() override {}

private:
    std::vector<DeviceId> group_;
    const VendorGroups& groups_;
    std::vector<PlacedView> outputs_;
    std::vector<DeviceAddress> sources_;  // by member; 0: none
    std::vector<std::vector<BoundLaunch*>> launches_;
};

}  // namespace

std::unique_ptr<Communication> make_vendor_all_reduce(const CommunicationContext& context,
                                                      const Collective& step) {
    return std::make_unique<VendorAllReduce>(context, step);
}

}  // namespace cleave::runtime
