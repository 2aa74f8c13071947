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
        if (self.id == from_) {
            send(self, rows, count);
            return 0;
        }
        receive(self, rows, count);
        return rows * source_.row_bytes();
    }

    void wake() override { pieces_.wake(); }

private:
    void send(const Participant& self, int64_t rows, int64_t count) {
        std::byte* memory = self.lane.open(rows * source_.row_bytes());
        Outgoing out(pieces_, 0, self, count, [&](int64_t p) {
            const Range part = Pieces::part(p, count, rows);
            stage_out(self.device, source_.from_row(part.begin), source_.columns, part.size(),
                      memory + part.begin * source_.row_bytes());
        });
        out.post_until(count);
    }

    void receive(const Participant& self, int64_t rows, int64_t count) {
        for (int64_t p = 0; p < count; ++p) {
            const Range part = Pieces::part(p, count, rows);
            const std::byte* payload = pieces_.await(0, p)[0];
            stage_in(self.device, destination_.from_row(part.begin), source_.columns, part.size(),
                     payload + part.begin * source_.row_bytes());
        }
        self.device.synchronize();
        pieces_.release(0, count);
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
