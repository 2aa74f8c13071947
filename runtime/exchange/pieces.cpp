// SPDX-License-Identifier: Apache-2.0
#include "runtime/exchange/pieces.h"

#include <algorithm>

#include "planner/machine/vendor.h"
#include "runtime/base/rounding.h"
#include "runtime/device/async_device.h"

namespace cleave::runtime {

using namespace planner;

namespace {

constexpr int64_t kAhead =
    3;  // the one that is awaited, the next, and one more for the host's time between

}  // namespace

Pieces::Pieces(const CommunicationContext& context, const std::vector<DeviceId>& senders,
               const std::vector<DeviceId>& receivers)
    : job_(context.ranks ? context.ranks->job : nullptr), piece_bytes_(context.piece_bytes) {
    const auto has_card = [&](const std::vector<DeviceId>& devices) {
        return std::any_of(devices.begin(), devices.end(), [&](DeviceId id) {
            return is_card(context.plan.machine.device(id).kind);
        });
    };
    const bool several = has_card(senders) || has_card(receivers);
    const int most = several ? DeviceStream::kPassFences : 1;
    const DeviceRanks ranks = context.ranks ? *context.ranks : DeviceRanks{};
    const auto here = [&](const std::vector<DeviceId>& devices, std::vector<size_t>& numbers) {
        std::vector<DeviceId> found;
        for (DeviceId id : devices) {
            numbers.push_back(found.size());
            if (ranks.here(id)) found.push_back(id);
        }
        return device_names(context.plan, found);
    };
    const auto from = here(senders, senders_), to = here(receivers, receivers_);
    const auto meetings = [&](const std::vector<std::string>& senders_names,
                              const std::vector<std::string>& receivers_names) {
        std::vector<std::unique_ptr<Rendezvous>> made;
        for (int i = 0; i < most; ++i)
            made.push_back(std::make_unique<Rendezvous>(context.control, context.label,
                                                        senders_names, receivers_names));
        return made;
    };
    meetings_ = meetings(from, to);
    sent_.assign(senders.size(), std::vector<uint64_t>(meetings_.size()));
    received_.assign(receivers.size(), std::vector<uint64_t>(meetings_.size()));
    to_.resize(senders.size());
    from_.resize(receivers.size());
    there_.resize(receivers.size());
    for (size_t s = 0; s < senders.size(); ++s)
        for (size_t r = 0; r < receivers.size(); ++r) {
            const DeviceId a = senders[s], b = receivers[r];
            if (ranks.here(a) == ranks.here(b)) continue;
            // One channel for each pair of devices: their steps have one order on both sides.
            const auto channel =
                static_cast<int>(a.index() * context.plan.machine.devices.size() + b.index());
            FarPair pair{s,
                         r,
                         ranks.rank(ranks.here(a) ? b : a),
                         channel,
                         meetings(device_names(context.plan, {a}), device_names(context.plan, {b})),
                         std::vector<uint64_t>(static_cast<size_t>(most))};
            (ranks.here(a) ? to_[s] : from_[r]).push_back(std::move(pair));
        }
}

int64_t Pieces::count(int64_t bytes, int64_t units) const {
    const int64_t wanted = ceil_div(bytes, piece_bytes_);
    return std::clamp<int64_t>(std::min(wanted, units), 1, static_cast<int64_t>(meetings_.size()));
}

void Pieces::post(StagingLane& lane, const std::byte* memory, size_t s, const Payload& payload,
                  int64_t piece) {
    const auto p = static_cast<size_t>(piece);
    lane.post(*meetings_[p], senders_[s], sent_[s][p]++);
    for (FarPair& pair : to_[s]) {
        Rendezvous* meeting = pair.meetings[p].get();
        const uint64_t round = pair.rounds[p]++;
        lane.post(*meeting, 0, round);
        const Range bytes = payload.read(s, pair.r, piece);
        if (bytes.empty()) {
            meeting->release(0, round);
            continue;
        }
        job_->send_payload(pair.rank, pair.channel,
                           {memory + bytes.begin, static_cast<size_t>(bytes.size())},
                           [meeting, round] { meeting->release(0, round); });
    }
}

// Asks for all that comes from other hosts, one sender's payload behind another's.
void Pieces::expect(StagingLane& lane, size_t r, const Payload& payload) {
    int64_t all = 0;
    std::vector<int64_t> places;
    for (const FarPair& pair : from_[r]) {
        const int64_t begin = payload.read(pair.s, r, 0).begin,
                      end = payload.read(pair.s, r, payload.pieces - 1).end;
        places.push_back(all - begin);
        all += end - begin;
    }
    std::byte* memory = lane.arrivals(all);
    for (size_t i = 0; i < from_[r].size(); ++i) {
        FarPair& pair = from_[r][i];
        // Where the payload would begin, were it here whole.
        std::byte* begin = memory + places[i];
        for (int64_t piece = 0; piece < payload.pieces; ++piece) {
            Rendezvous* meeting = pair.meetings[static_cast<size_t>(piece)].get();
            const uint64_t round = pair.rounds[static_cast<size_t>(piece)];
            const Range bytes = payload.read(pair.s, r, piece);
            if (bytes.empty())
                meeting->post(0, round, begin);
            else
                job_->receive_payload(pair.rank, pair.channel,
                                      {begin + bytes.begin, static_cast<size_t>(bytes.size())},
                                      [meeting, round, begin] { meeting->post(0, round, begin); });
        }
    }
}

const std::vector<const std::byte*>& Pieces::await(StagingLane& lane, size_t r,
                                                   const Payload& payload, int64_t piece) {
    const auto p = static_cast<size_t>(piece);
    if (from_[r].empty()) return meetings_[p]->await_posted(receivers_[r], received_[r][p]);
    if (piece == 0) expect(lane, r, payload);
    const auto& near = meetings_[p]->await_posted(receivers_[r], received_[r][p]);
    std::vector<const std::byte*>& there = there_[r];
    there.assign(sent_.size(), nullptr);
    // Of the senders here each has its number in the order of all.
    for (size_t s = 0; s < there.size(); ++s)
        if (senders_[s] < near.size()) there[s] = near[senders_[s]];
    for (FarPair& pair : from_[r])
        there[pair.s] = pair.meetings[p]->await_posted(0, pair.rounds[p]).front();
    return there;
}

void Pieces::release(size_t r, int64_t count) {
    for (size_t p = 0; p < static_cast<size_t>(count); ++p) {
        meetings_[p]->release(receivers_[r], received_[r][p]++);
        for (FarPair& pair : from_[r]) pair.meetings[p]->release(0, pair.rounds[p]++);
    }
}

void Pieces::wake() {
    for (auto& meeting : meetings_) meeting->wake();
    for (auto* side : {&to_, &from_})
        for (auto& pairs : *side)
            for (FarPair& pair : pairs)
                for (auto& meeting : pair.meetings) meeting->wake();
}

Outgoing::Outgoing(Pieces& pieces, size_t s, const Participant& self, const std::byte* memory,
                   Payload payload, std::function<void(int64_t)> copy)
    : pieces_(pieces),
      s_(s),
      self_(self),
      memory_(memory),
      payload_(std::move(payload)),
      stream_(self.device.stream()),
      count_(payload_.pieces),
      copy_(std::move(copy)) {
    start_until(kAhead);
    if (!stream_) post_until(count_);
}

void Outgoing::start_until(int64_t count) {
    for (; started_ < std::min(count, count_); ++started_) {
        copy_(started_);
        if (stream_) stream_->place_fence(static_cast<int>(started_));
    }
}

void Outgoing::post_until(int64_t count) {
    for (; posted_ < count; ++posted_) {
        start_until(posted_ + kAhead);
        if (stream_) stream_->await_fence(static_cast<int>(posted_));
        pieces_.post(self_.lane, memory_, s_, payload_, posted_);
    }
}

}  // namespace cleave::runtime
