// SPDX-License-Identifier: Apache-2.0
// One value from one device to another, to or from a GPU in pieces.
#include "runtime/exchange/pieces.h"

namespace cleave::runtime {

namespace {

using namespace planner;

class TransferStep : public Communication {
public:
    TransferStep(const CommunicationContext& context, const Transfer& step)
        : from_(context.phase.values[step.source.index()].device),
          to_(context.phase.values[step.destination.index()].device),
          source_(context.arenas.view(context.phase, step.source)),
          destination_(context.arenas.view(context.phase, step.destination)),
          pieces_(context, {from_}, {to_}) {
        CLEAVE_CHECK(from_ != to_) << context.label << " stays on one device";
        CLEAVE_CHECK(source_.dtype == destination_.dtype) << context.label << " changes the type";
    }

    std::vector<DeviceId> participants() const override {
        return from_ < to_ ? std::vector{from_, to_} : std::vector{to_, from_};
    }

    int64_t take_part(const Participant& self, const PassShape& shape, uint64_t) override {
        const int64_t rows = source_.rows(shape.num_tokens, shape.num_outputs);
        const int64_t count = pieces_.count(rows * source_.row_bytes(), rows);
        const Payload payload{count, [this, count, rows](size_t, size_t, int64_t p) {
                                  const Range part = Pieces::part(p, count, rows);
                                  return Range{part.begin * source_.row_bytes(),
                                               part.end * source_.row_bytes()};
                              }};
        if (self.id == from_) {
            send(self, rows, payload);
            return 0;
        }
        receive(self, rows, payload);
        return rows * source_.row_bytes();
    }

    void wake() override { pieces_.wake(); }

private:
    void send(const Participant& self, int64_t rows, const Payload& payload) {
        std::byte* memory = self.lane.open(rows * source_.row_bytes());
        Outgoing out(pieces_, 0, self, memory, payload, [&](int64_t p) {
            const Range part = Pieces::part(p, payload.pieces, rows);
            stage_out(self.device, source_.from_row(part.begin), source_.columns, part.size(),
                      memory + part.begin * source_.row_bytes());
        });
        out.post_until(payload.pieces);
    }

    void receive(const Participant& self, int64_t rows, const Payload& payload) {
        for (int64_t p = 0; p < payload.pieces; ++p) {
            const Range part = Pieces::part(p, payload.pieces, rows);
            const std::byte* there = pieces_.await(self.lane, 0, payload, p)[0];
            stage_in(self.device, destination_.from_row(part.begin), source_.columns, part.size(),
                     there + part.begin * source_.row_bytes());
        }
        self.device.synchronize();
        pieces_.release(0, payload.pieces);
    }

    DeviceId from_, to_;
    PlacedView source_, destination_;
    Pieces pieces_;
};

}  // namespace

std::unique_ptr<Communication> make_transfer(const CommunicationContext& context,
                                             const Transfer& step) {
    return std::make_unique<TransferStep>(context, step);
}

}  // namespace cleave::runtime
