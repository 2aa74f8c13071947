// SPDX-License-Identifier: Apache-2.0
// One value from one device to another.
#include "runtime/communicate/communication.h"

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
          meeting_(context.control, context.label, device_names(context.plan, {from_}),
                   device_names(context.plan, {to_})) {
        CHECK(from_ != to_) << context.label << " stays on one device";
        CHECK(source_.dtype == destination_.dtype) << context.label << " changes the type";
    }

    std::vector<DeviceId> participants() const override {
        return from_ < to_ ? std::vector{from_, to_} : std::vector{to_, from_};
    }

    int64_t take_part(const Participant& self, const PassShape& shape, uint64_t round) override {
        int64_t rows = source_.rows(shape.num_tokens, shape.num_outputs);
        int64_t bytes = rows * source_.row_bytes();
        if (self.id == from_) {
            stage_out(self.device, source_, source_.columns, rows, self.lane.open(bytes));
            self.device.synchronize();
            self.lane.post(meeting_, 0, round);
            return 0;
        }
        stage_in(self.device, destination_, source_.columns, rows,
                 meeting_.await_posted(0, round)[0]);
        self.device.synchronize();
        meeting_.release(0, round);
        return bytes;
    }

    void wake() override { meeting_.wake(); }

private:
    DeviceId from_, to_;
    PlacedView source_, destination_;
    Rendezvous meeting_;
};

}  // namespace

std::unique_ptr<Communication> make_transfer(const CommunicationContext& context,
                                             const Transfer& step) {
    return std::make_unique<TransferStep>(context, step);
}

}  // namespace cleave::runtime
