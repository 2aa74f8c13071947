// SPDX-License-Identifier: Apache-2.0
// A step that kernels carry out over the members' memory: each participant launches its own, and
// nobody on the host waits for anybody.
#include <algorithm>

#include "planner/cost/peer_exchange.h"
#include "planner/plan/plan_queries.h"
#include "runtime/exchange/communication.h"

namespace cleave::runtime {

namespace {

using namespace planner;

class PeerExchange : public Communication {
public:
    PeerExchange(const CommunicationContext& context, const Step& step)
        : step_(step), members_(step_devices(context.phase, step)) {
        std::sort(members_.begin(), members_.end());
        for (DeviceId member : members_) {
            CLEAVE_CHECK(!context.launches[member.index()].empty())
                << "the program of " << context.plan.machine.device(member).name
                << " has no kernel for " << context.label;
            launches_.push_back(context.launches[member.index()]);
        }
        for (PlacedId id : sent_values(step)) {
            sources_.push_back(context.phase.values[id.index()].device);
            sent_.push_back(context.arenas.view(context.phase, id));
        }
        if (const Transfer* t = step.transfer())
            receivers_ = {context.phase.values[t->destination.index()].device};
        else
            receivers_ = step.collective()->group;
    }

    std::vector<DeviceId> participants() const override { return members_; }
    Path path() const override { return Path::kPeer; }

    int64_t take_part(const Participant& self, const PassShape& shape, uint64_t) override {
        for (BoundLaunch* bound : launches_[static_cast<size_t>(position_of(self.id, members_))])
            launch(self.device, *bound, shape);
        return received(self.id, shape);
    }

    void wake() override {}

private:
    // What the kernels of `self` read of others' memory.
    int64_t received(DeviceId self, const PassShape& shape) const {
        if (position_of(self, receivers_) < 0) return 0;
        int64_t all = 0, others = 0;
        for (size_t s = 0; s < sources_.size(); ++s) {
            const int64_t bytes =
                sent_[s].rows(shape.num_tokens, shape.num_outputs) * sent_[s].row_bytes();
            all += bytes;
            if (sources_[s] != self) others += bytes;
        }
        const Collective* c = step_.collective();
        if (!c || !c->two_phase) return others;
        // A part of each contribution, and the finished parts of the others.
        const auto n = static_cast<int64_t>(sources_.size());
        const int64_t payload = all / n, place = position_of(self, sources_);
        if (place < 0) return payload;
        const int64_t own = payload * (place + 1) / n - payload * place / n;
        return (n - 1) * own + payload - own;
    }

    const Step& step_;
    std::vector<DeviceId> members_, sources_, receivers_;
    std::vector<std::vector<BoundLaunch*>> launches_;  // by member
    std::vector<PlacedView> sent_;                     // by source
};

}  // namespace

std::unique_ptr<Communication> make_peer_exchange(const CommunicationContext& context,
                                                  const Step& step) {
    return std::make_unique<PeerExchange>(context, step);
}

}  // namespace cleave::runtime
