// SPDX-License-Identifier: Apache-2.0
// One value from one device to another. To or from a GPU a large value goes in pieces: while the host has one, or the receiver
// copies it in, the sender's next is on its way out.
#include <algorithm>

#include "runtime/communicate/communication.h"
#include "runtime/device_stream.h"

namespace cleave::runtime {

namespace {

using namespace planner;

constexpr int kMostPieces = DeviceStream::kPassFences;

class TransferStep : public Communication {
public:
    TransferStep(const CommunicationContext& context, const Transfer& step)
        : from_(context.phase.values[step.source.index()].device),
          to_(context.phase.values[step.destination.index()].device),
          source_(context.arenas.view(context.phase, step.source)),
          destination_(context.arenas.view(context.phase, step.destination)),
          piece_bytes_(context.piece_bytes) {
        CHECK(from_ != to_) << context.label << " stays on one device";
        CHECK(source_.dtype == destination_.dtype) << context.label << " changes the type";
        const bool in_pieces = is_card(context.plan.machine.device(from_).kind) ||
                               is_card(context.plan.machine.device(to_).kind);
        for (int i = 0; i < (in_pieces ? kMostPieces : 1); ++i)
            meetings_.push_back(std::make_unique<Rendezvous>(context.control, context.label,
                                                             device_names(context.plan, {from_}),
                                                             device_names(context.plan, {to_})));
        sent_.resize(meetings_.size());
        received_.resize(meetings_.size());
    }

    std::vector<DeviceId> participants() const override {
        return from_ < to_ ? std::vector{from_, to_} : std::vector{to_, from_};
    }

    int64_t take_part(const Participant& self, const PassShape& shape, uint64_t) override {
        const int64_t rows = source_.rows(shape.num_tokens, shape.num_outputs);
        if (self.id == from_) {
            send(self, rows);
            return 0;
        }
        receive(self, rows);
        return rows * source_.row_bytes();
    }

    void wake() override {
        for (auto& meeting : meetings_) meeting->wake();
    }

private:
    // As many for both sides.
    size_t pieces(int64_t rows) const {
        const int64_t wanted = (rows * source_.row_bytes() + piece_bytes_ - 1) / piece_bytes_;
        return static_cast<size_t>(
            std::clamp<int64_t>(std::min(wanted, rows), 1, static_cast<int64_t>(meetings_.size())));
    }
    static Range rows_of(size_t piece, size_t pieces, int64_t rows) {
        const auto n = static_cast<int64_t>(pieces), i = static_cast<int64_t>(piece);
        return {rows * i / n, rows * (i + 1) / n};
    }
    static PlacedView rows_from(PlacedView view, int64_t row) {
        view.address += static_cast<DeviceAddress>(row * view.row_bytes());
        return view;
    }

    void send(const Participant& self, int64_t rows) {
        const size_t count = pieces(rows);
        std::byte* memory = self.lane.open(rows * source_.row_bytes());
        DeviceStream* stream = self.device.stream();
        const auto post = [&](size_t p) { self.lane.post(*meetings_[p], 0, sent_[p]++); };
        for (size_t p = 0; p < count; ++p) {
            const Range part = rows_of(p, count, rows);
            stage_out(self.device, rows_from(source_, part.begin), source_.columns, part.size(),
                      memory + part.begin * source_.row_bytes());
            if (stream)
                stream->place_fence(static_cast<int>(p));
            else
                post(p);
        }
        for (size_t p = 0; stream && p < count; ++p) {
            stream->await_fence(static_cast<int>(p));
            post(p);
        }
    }

    void receive(const Participant& self, int64_t rows) {
        const size_t count = pieces(rows);
        for (size_t p = 0; p < count; ++p) {
            const Range part = rows_of(p, count, rows);
            const std::byte* payload = meetings_[p]->await_posted(0, received_[p])[0];
            stage_in(self.device, rows_from(destination_, part.begin), source_.columns, part.size(),
                     payload + part.begin * source_.row_bytes());
        }
        self.device.synchronize();
        for (size_t p = 0; p < count; ++p) meetings_[p]->release(0, received_[p]++);
    }

    DeviceId from_, to_;
    PlacedView source_, destination_;
    int64_t piece_bytes_;
    std::vector<std::unique_ptr<Rendezvous>> meetings_;  // by piece
    std::vector<uint64_t> sent_, received_;              // rounds of each, by the two sides
};

}  // namespace

std::unique_ptr<Communication> make_transfer(const CommunicationContext& context,
                                             const Transfer& step) {
    return std::make_unique<TransferStep>(context, step);
}

}  // namespace cleave::runtime
