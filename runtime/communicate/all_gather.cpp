// SPDX-License-Identifier: Apache-2.0
// Column blocks of a value, one a contributor, side by side in the buffer of every member.
#include <algorithm>

#include "runtime/communicate/communication.h"

namespace cleave::runtime {

namespace {

using namespace planner;

class AllGather : public Communication {
public:
    AllGather(const CommunicationContext& context, const Collective& step) : members_(step.group) {
        for (PlacedId id : step.contributions) {
            contributors_.push_back(context.phase.values[id.index()].device);
            blocks_.push_back(context.arenas.view(context.phase, id));
        }
        for (PlacedId id : step.outputs) outputs_.push_back(context.arenas.view(context.phase, id));
        meeting_ = std::make_unique<Rendezvous>(context.control, context.label,
                                                device_names(context.plan, contributors_),
                                                device_names(context.plan, members_));
    }

    std::vector<DeviceId> participants() const override {
        std::vector<DeviceId> all = members_;
        all.insert(all.end(), contributors_.begin(), contributors_.end());
        std::sort(all.begin(), all.end());
        all.erase(std::unique(all.begin(), all.end()), all.end());
        return all;
    }

    int64_t take_part(const Participant& self, const PassShape& shape, uint64_t round) override {
        if (int c = position_of(self.id, contributors_); c >= 0)
            contribute(static_cast<size_t>(c), self, shape, round);
        int m = position_of(self.id, members_);
        return m >= 0 ? receive(static_cast<size_t>(m), self, shape, round) : 0;
    }

    void wake() override { meeting_->wake(); }

private:
    void contribute(size_t c, const Participant& self, const PassShape& shape, uint64_t round) {
        const PlacedView& block = blocks_[c];
        int64_t rows = block.rows(shape.num_tokens, shape.num_outputs);
        stage_out(self.device, block, block.columns, rows,
                  self.lane.open(rows * block.row_bytes()));
        self.device.synchronize();
        self.lane.post(*meeting_, c, round);
    }

    int64_t receive(size_t m, const Participant& self, const PassShape& shape, uint64_t round) {
        const auto& payloads = meeting_->await_posted(m, round);
        int64_t received = 0;
        for (size_t c = 0; c < blocks_.size(); ++c) {
            int64_t rows = blocks_[c].rows(shape.num_tokens, shape.num_outputs);
            stage_in(self.device, outputs_[m], blocks_[c].columns, rows, payloads[c]);
            if (contributors_[c] != self.id) received += rows * blocks_[c].row_bytes();
        }
        self.device.synchronize();
        meeting_->release(m, round);
        return received;
    }

    std::vector<DeviceId> members_, contributors_;
    std::vector<PlacedView> blocks_, outputs_;  // by contributor, by member
    std::unique_ptr<Rendezvous> meeting_;
};

}  // namespace

std::unique_ptr<Communication> make_all_gather(const CommunicationContext& context,
                                               const Collective& step) {
    return std::make_unique<AllGather>(context, step);
}

}  // namespace cleave::runtime
