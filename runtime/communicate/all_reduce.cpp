// SPDX-License-Identifier: Apache-2.0
// The sum of partial values on every member, with the residual Add as epilogue. N is one member's payload, n the
// members, c the contributors. One shot: every member sums all contributions; c (n - 1) N bytes move. Two phases:
// each contributor sums one part of the elements, residual included, and everybody takes the finished parts;
// (c + n - 2) N bytes move, and each sum is made once. Both sum in contributor order in f32, so all members of
// one run hold the same bits.
#include "runtime/communicate/communication.h"

namespace cleave::runtime {

namespace {

using namespace planner;

// What both forms share: who takes part, with which values.
class AllReduce : public Communication {
public:
    AllReduce(const CommunicationContext& context, const Collective& step) : members_(step.group) {
        for (PlacedId id : step.contributions) {
            contributors_.push_back(context.phase.values[id.index()].device);
            partials_.push_back(context.arenas.view(context.phase, id));
            CHECK(position_of(contributors_.back(), members_) >= 0)
                << context.label << ": a contributor is no member";
        }
        CHECK(!contributors_.empty()) << context.label << " has no contribution";
        for (PlacedId id : step.outputs) outputs_.push_back(context.arenas.view(context.phase, id));
        for (PlacedId id : step.epilogue_inputs)
            residuals_.push_back(context.arenas.view(context.phase, id).address);
        CHECK(residuals_.empty() == step.epilogue.empty())
            << context.label << ": epilogue and inputs disagree";
        for (OpId op : step.epilogue) {
            CHECK(step.epilogue.size() == 1 &&
                  context.plan.graph.op(op).kind == importer::OpKind::kAdd)
                << context.label << ": the epilogue is not one Add";
        }
        for (const auto* views : {&partials_, &outputs_}) {
            for (const PlacedView& view : *views) {
                CHECK(view.columns == outputs_[0].columns && view.dtype == outputs_[0].dtype)
                    << context.label << ": members differ in box or type";
            }
        }
    }

    std::vector<DeviceId> participants() const override { return members_; }

protected:
    // Elements of the value in a pass.
    int64_t count(const PassShape& shape) const {
        return outputs_[0].rows(shape.num_tokens, shape.num_outputs) * outputs_[0].columns.size();
    }
    DType dtype() const { return outputs_[0].dtype; }
    int64_t bytes(int64_t elements) const { return dtype_bytes(dtype(), elements); }
    DeviceAddress residual(size_t member, int64_t offset_bytes) const {
        return residuals_.empty() ? 0
                                  : residuals_[member] + static_cast<DeviceAddress>(offset_bytes);
    }
    size_t member(DeviceId self) const { return static_cast<size_t>(position_of(self, members_)); }
    int contributor(DeviceId self) const { return position_of(self, contributors_); }

    void contribute(Rendezvous& meeting, size_t c, const Participant& self, int64_t elements,
                    uint64_t round) {
        copy_out(self.device, partials_[c].address, self.lane.open(bytes(elements)),
                 bytes(elements));
        self.device.synchronize();
        self.lane.post(meeting, c, round);
    }

    static void copy_out(Device& device, DeviceAddress from, std::byte* to, int64_t size) {
        if (size > 0) device.copy_out(from, to, {1, size, size, size});
    }
    static void copy_in(Device& device, const std::byte* from, DeviceAddress to, int64_t size) {
        if (size > 0) device.copy_in(from, to, {1, size, size, size});
    }

    std::vector<DeviceId> members_, contributors_;
    std::vector<PlacedView> partials_, outputs_;  // by contributor, by member
    std::vector<DeviceAddress> residuals_;        // by member; empty without epilogue
};

class OneShot : public AllReduce {
public:
    OneShot(const CommunicationContext& context, const Collective& step)
        : AllReduce(context, step),
          meeting_(context.control, context.label, device_names(context.plan, contributors_),
                   device_names(context.plan, members_)) {}

    int64_t take_part(const Participant& self, const PassShape& shape, uint64_t round) override {
        int64_t elements = count(shape);
        int c = contributor(self.id);
        if (c >= 0) contribute(meeting_, static_cast<size_t>(c), self, elements, round);
        size_t m = member(self.id);
        self.device.reduce(meeting_.await_posted(m, round), residual(m, 0), outputs_[m].address,
                           elements, dtype());
        meeting_.release(m, round);  // the sources have been read
        int64_t others = static_cast<int64_t>(contributors_.size()) - (c >= 0 ? 1 : 0);
        return others * bytes(elements);
    }

    void wake() override { meeting_.wake(); }

private:
    Rendezvous meeting_;
};

class TwoPhase : public AllReduce {
public:
    TwoPhase(const CommunicationContext& context, const Collective& step)
        : AllReduce(context, step),
          partials_meeting_(context.control, context.label,
                            device_names(context.plan, contributors_),
                            device_names(context.plan, contributors_)),
          sums_meeting_(context.control, context.label, device_names(context.plan, contributors_),
                        device_names(context.plan, members_)) {}

    int64_t take_part(const Participant& self, const PassShape& shape, uint64_t round) override {
        int64_t elements = count(shape);
        size_t m = member(self.id);
        int c = contributor(self.id);
        int64_t received = c >= 0 ? sum_part(static_cast<size_t>(c), m, self, elements, round) : 0;
        const auto& sums = sums_meeting_.await_posted(m, round);
        for (size_t owner = 0; owner < contributors_.size(); ++owner) {
            if (static_cast<int>(owner) == c) continue;  // already in place
            Range own = part(owner, elements);
            copy_in(self.device, sums[owner],
                    outputs_[m].address + static_cast<DeviceAddress>(bytes(own.begin)),
                    bytes(own.size()));
            received += bytes(own.size());
        }
        self.device.synchronize();
        sums_meeting_.release(m, round);
        return received;
    }

    void wake() override {
        partials_meeting_.wake();
        sums_meeting_.wake();
    }

private:
    Range part(size_t owner, int64_t elements) const {
        int64_t n = static_cast<int64_t>(contributors_.size()), i = static_cast<int64_t>(owner);
        return {elements * i / n, elements * (i + 1) / n};
    }

    // Sums this contributor's part into its own output and posts it; the bytes that came from others.
    int64_t sum_part(size_t c, size_t m, const Participant& self, int64_t elements,
                     uint64_t round) {
        contribute(partials_meeting_, c, self, elements, round);
        Range own = part(c, elements);
        int64_t offset = bytes(own.begin);
        std::vector<const std::byte*> sources = partials_meeting_.await_posted(c, round);
        for (const std::byte*& source : sources) source += offset;
        DeviceAddress sum = outputs_[m].address + static_cast<DeviceAddress>(offset);
        self.device.reduce(sources, residual(m, offset), sum, own.size(), dtype());
        self.device.synchronize();
        partials_meeting_.release(c, round);
        copy_out(self.device, sum, self.lane.open(bytes(own.size())), bytes(own.size()));
        self.device.synchronize();
        self.lane.post(sums_meeting_, c, round);
        return (static_cast<int64_t>(contributors_.size()) - 1) * bytes(own.size());
    }

    Rendezvous partials_meeting_, sums_meeting_;
};

}  // namespace

std::unique_ptr<Communication> make_all_reduce(const CommunicationContext& context,
                                               const Collective& step) {
    switch (step.implementation) {
        case CollectiveImplementation::kOneShot: return std::make_unique<OneShot>(context, step);
        case CollectiveImplementation::kTwoPhase: return std::make_unique<TwoPhase>(context, step);
        default: break;
    }
    throw UserError(
        "{} asks for the '{}' implementation; this build has 'one_shot' and 'two_phase'; make the "
        "plan "
        "anew with this build",
        context.label, collective_implementation_name(step.implementation));
}

}  // namespace cleave::runtime
