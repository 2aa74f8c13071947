// SPDX-License-Identifier: Apache-2.0
// Column blocks of a value, one a contributor, side by side in the buffer of every member; of GPUs
// in pieces.
#include <algorithm>
#include <optional>

#include "runtime/exchange/pieces.h"

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
        pieces_ = std::make_unique<Pieces>(context, contributors_, members_);
    }

    std::vector<DeviceId> participants() const override {
        std::vector<DeviceId> all = members_;
        all.insert(all.end(), contributors_.begin(), contributors_.end());
        std::sort(all.begin(), all.end());
        all.erase(std::unique(all.begin(), all.end()), all.end());
        return all;
    }

    int64_t take_part(const Participant& self, const PassShape& shape, uint64_t) override {
        const int64_t rows = blocks_[0].rows(shape.num_tokens, shape.num_outputs);
        int64_t largest = 0;
        for (const PlacedView& block : blocks_)
            largest = std::max(largest, rows * block.row_bytes());
        const int64_t count = pieces_->count(largest, rows);
        const Payload payload{count, [this, count, rows](size_t c, size_t, int64_t p) {
                                  const Range part = Pieces::part(p, count, rows);
                                  const int64_t row_bytes = blocks_[c].row_bytes();
                                  return Range{part.begin * row_bytes, part.end * row_bytes};
                              }};
        std::optional<Outgoing> out;
        if (const int c = position_of(self.id, contributors_); c >= 0) {
            const PlacedView& block = blocks_[static_cast<size_t>(c)];
            std::byte* memory = self.lane.open(rows * block.row_bytes());
            out.emplace(*pieces_, static_cast<size_t>(c), self, memory, payload,
                        [&self, &block, memory, rows, count](int64_t p) {
                            const Range part = Pieces::part(p, count, rows);
                            stage_out(self.device, block.from_row(part.begin), block.columns,
                                      part.size(), memory + part.begin * block.row_bytes());
                        });
        }
        const int m = position_of(self.id, members_);
        if (m >= 0) return receive(static_cast<size_t>(m), self, rows, payload, out);
        if (out) out->post_until(count);
        return 0;
    }

    void wake() override { pieces_->wake(); }

private:
    int64_t receive(size_t m, const Participant& self, int64_t rows, const Payload& payload,
                    std::optional<Outgoing>& out) {
        const int64_t count = payload.pieces;
        int64_t received = 0;
        for (int64_t p = 0; p < count; ++p) {
            if (out) out->post_until(p + 1);
            const auto& payloads = pieces_->await(self.lane, m, payload, p);
            const Range part = Pieces::part(p, count, rows);
            for (size_t c = 0; c < blocks_.size(); ++c) {
                const int64_t row_bytes = blocks_[c].row_bytes();
                stage_in(self.device, outputs_[m].from_row(part.begin), blocks_[c].columns,
                         part.size(), payloads[c] + part.begin * row_bytes);
                if (contributors_[c] != self.id) received += part.size() * row_bytes;
            }
        }
        self.device.synchronize();
        pieces_->release(m, count);
        return received;
    }

    std::vector<DeviceId> members_, contributors_;
    std::vector<PlacedView> blocks_, outputs_;  // by contributor, by member
    std::unique_ptr<Pieces> pieces_;
};

}  // namespace

std::unique_ptr<Communication> make_all_gather(const CommunicationContext& context,
                                               const Collective& step) {
    return std::make_unique<AllGather>(context, step);
}

}  // namespace cleave::runtime
