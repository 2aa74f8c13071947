// SPDX-License-Identifier: Apache-2.0
// The sum of partial values on every member, with the residual Add as epilogue. N is one member's
// payload, n the members, c the contributors. One shot: every member sums all contributions; c (n -
// 1) N bytes move. Two phases: each contributor sums one part of the elements, residual included,
// and everybody takes the finished parts; (c + n - 2) N bytes move, and each sum is made once. Both
// sum in contributor order in f32, so all members of one run hold the same bits. Payloads of GPUs
// go in pieces: one is summed while the next comes out, and copied in while the one after is
// summed.
#include <algorithm>
#include <optional>

#include "runtime/exchange/pieces.h"

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
            CLEAVE_CHECK(position_of(contributors_.back(), members_) >= 0)
                << context.label << ": a contributor is no member";
        }
        CLEAVE_CHECK(!contributors_.empty()) << context.label << " has no contribution";
        for (PlacedId id : step.outputs) outputs_.push_back(context.arenas.view(context.phase, id));
        for (PlacedId id : step.epilogue_inputs)
            residuals_.push_back(context.arenas.view(context.phase, id).address);
        CLEAVE_CHECK(residuals_.empty() == step.epilogue.empty())
            << context.label << ": epilogue and inputs disagree";
        for (OpId op : step.epilogue) {
            CLEAVE_CHECK(step.epilogue.size() == 1 &&
                         context.plan.graph.op(op).kind == importer::OpKind::kAdd)
                << context.label << ": the epilogue is not one Add";
        }
        for (const auto* views : {&partials_, &outputs_}) {
            for (const PlacedView& view : *views) {
                CLEAVE_CHECK(view.columns == outputs_[0].columns && view.dtype == outputs_[0].dtype)
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

    // Sends `elements` at `from` in so many pieces.
    Outgoing outgoing(Pieces& to, size_t s, const Participant& self, DeviceAddress from,
                      int64_t elements, const Payload& payload) const {
        std::byte* memory = self.lane.open(bytes(elements));
        return Outgoing(to, s, self, memory, payload,
                        [this, &self, from, elements, count = payload.pieces, memory](int64_t p) {
                            const Range part = Pieces::part(p, count, elements);
                            const int64_t at = bytes(part.begin), size = bytes(part.size());
                            if (size > 0)
                                self.device.copy_out(from + static_cast<DeviceAddress>(at),
                                                     memory + at, {1, size, size, size});
                        });
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
        : AllReduce(context, step), pieces_(context, contributors_, members_) {}

    int64_t take_part(const Participant& self, const PassShape& shape, uint64_t) override {
        const int64_t elements = count(shape), pieces = pieces_.count(bytes(elements), elements);
        const Payload payload{pieces, [this, pieces, elements](size_t, size_t, int64_t p) {
                                  const Range part = Pieces::part(p, pieces, elements);
                                  return Range{bytes(part.begin), bytes(part.end)};
                              }};
        const int c = contributor(self.id);
        const size_t m = member(self.id);
        std::optional<Outgoing> out;
        if (c >= 0) {
            const auto s = static_cast<size_t>(c);
            out.emplace(outgoing(pieces_, s, self, partials_[s].address, elements, payload));
        }
        int64_t there = 0;
        // Its own piece first: the others wait for it as it does for theirs.
        const auto take = [&]() -> const std::vector<const std::byte*>& {
            if (out) out->post_until(there + 1);
            return pieces_.await(self.lane, m, payload, there++);
        };
        // A copy, as the next one is written in its place.
        // NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
        const std::vector<const std::byte*> sources = take();
        self.device.reduce(
            sources, residual(m, 0), outputs_[m].address, elements, dtype(), [&](int64_t arrived) {
                while (bytes(Pieces::part(there - 1, pieces, elements).end) < arrived) take();
            });
        while (there < pieces) take();
        pieces_.release(m, pieces);  // the sources have been read
        const int64_t others = static_cast<int64_t>(contributors_.size()) - (c >= 0 ? 1 : 0);
        return others * bytes(elements);
    }

    void wake() override { pieces_.wake(); }

private:
    Pieces pieces_;
};

class TwoPhase : public AllReduce {
public:
    TwoPhase(const CommunicationContext& context, const Collective& step)
        : AllReduce(context, step),
          partials_pieces_(context, contributors_, contributors_),
          sums_pieces_(context, contributors_, members_) {}

    int64_t take_part(const Participant& self, const PassShape& shape, uint64_t) override {
        const int64_t elements = count(shape);
        const size_t m = member(self.id);
        const int c = contributor(self.id);
        int64_t received = c >= 0 ? sum_part(static_cast<size_t>(c), m, self, elements) : 0;
        const Payload finished = payload_of_sums(elements);
        const int64_t pieces = finished.pieces;
        for (int64_t p = 0; p < pieces; ++p) {
            const auto& sums = sums_pieces_.await(self.lane, m, finished, p);
            for (size_t owner = 0; owner < contributors_.size(); ++owner) {
                if (static_cast<int>(owner) == c) continue;  // already in place
                const Range own = part(owner, elements),
                            piece = Pieces::part(p, pieces, own.size());
                copy_in(self.device, sums[owner] + bytes(piece.begin),
                        outputs_[m].address +
                            static_cast<DeviceAddress>(bytes(own.begin + piece.begin)),
                        bytes(piece.size()));
                received += bytes(piece.size());
            }
        }
        self.device.synchronize();
        sums_pieces_.release(m, pieces);
        return received;
    }

    void wake() override {
        partials_pieces_.wake();
        sums_pieces_.wake();
    }

private:
    Range part(size_t owner, int64_t elements) const {
        int64_t n = static_cast<int64_t>(contributors_.size()), i = static_cast<int64_t>(owner);
        return {elements * i / n, elements * (i + 1) / n};
    }
    // Of each owner's part, the same for all.
    int64_t pieces_of_sums(int64_t elements) const {
        const int64_t least = elements / static_cast<int64_t>(contributors_.size());
        return sums_pieces_.count(bytes(least), least);
    }

    // Each owner's finished part, which everybody else takes.
    Payload payload_of_sums(int64_t elements) const {
        const int64_t pieces = pieces_of_sums(elements);
        return {pieces, [this, pieces, elements](size_t owner, size_t, int64_t p) {
                    const Range piece = Pieces::part(p, pieces, part(owner, elements).size());
                    return Range{bytes(piece.begin), bytes(piece.end)};
                }};
    }

    // Sums this contributor's part into its own output and posts it; the bytes that came from
    // others.
    int64_t sum_part(size_t c, size_t m, const Participant& self, int64_t elements) {
        const int64_t pieces = partials_pieces_.count(bytes(elements), elements);
        // Of a contribution each owner reads its own part alone.
        const Payload payload{
            pieces, [this, pieces, elements](size_t, size_t owner, int64_t p) {
                const Range piece = Pieces::part(p, pieces, elements), own = part(owner, elements);
                const int64_t begin = std::clamp(own.begin, piece.begin, piece.end);
                return Range{bytes(begin), bytes(std::clamp(own.end, begin, piece.end))};
            }};
        outgoing(partials_pieces_, c, self, partials_[c].address, elements, payload)
            .post_until(pieces);
        const Range own = part(c, elements);
        const int64_t offset = bytes(own.begin);
        std::vector<const std::byte*> sources = partials_pieces_.await(self.lane, c, payload, 0);
        for (const std::byte*& source : sources) source += offset;
        int64_t there = 1;
        const DeviceAddress sum = outputs_[m].address + static_cast<DeviceAddress>(offset);
        self.device.reduce(
            sources, residual(m, offset), sum, own.size(), dtype(), [&](int64_t arrived) {
                while (bytes(Pieces::part(there - 1, pieces, elements).end) < offset + arrived)
                    partials_pieces_.await(self.lane, c, payload, there++);
            });
        while (there < pieces) partials_pieces_.await(self.lane, c, payload, there++);
        partials_pieces_.release(c, pieces);
        const Payload finished = payload_of_sums(elements);
        outgoing(sums_pieces_, c, self, sum, own.size(), finished).post_until(finished.pieces);
        return (static_cast<int64_t>(contributors_.size()) - 1) * bytes(own.size());
    }

    Pieces partials_pieces_, sums_pieces_;
};

}  // namespace

std::unique_ptr<Communication> make_all_reduce(const CommunicationContext& context,
                                               const Collective& step) {
    if (step.two_phase) return std::make_unique<TwoPhase>(context, step);
    return std::make_unique<OneShot>(context, step);
}

}  // namespace cleave::runtime
