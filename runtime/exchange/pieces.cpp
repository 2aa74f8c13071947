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
    : piece_bytes_(context.piece_bytes) {
    const auto has_card = [&](const std::vector<DeviceId>& devices) {
        return std::any_of(devices.begin(), devices.end(), [&](DeviceId id) {
            return is_card(context.plan.machine.device(id).kind);
        });
    };
    const bool several = has_card(senders) || has_card(receivers);
    for (int i = 0; i < (several ? DeviceStream::kPassFences : 1); ++i)
        meetings_.push_back(std::make_unique<Rendezvous>(context.control, context.label,
                                                         device_names(context.plan, senders),
                                                         device_names(context.plan, receivers)));
    sent_.assign(senders.size(), std::vector<uint64_t>(meetings_.size()));
    received_.assign(receivers.size(), std::vector<uint64_t>(meetings_.size()));
}

int64_t Pieces::count(int64_t bytes, int64_t units) const {
    const int64_t wanted = ceil_div(bytes, piece_bytes_);
    return std::clamp<int64_t>(std::min(wanted, units), 1, static_cast<int64_t>(meetings_.size()));
}

void Pieces::post(StagingLane& lane, size_t s, int64_t piece) {
    const auto p = static_cast<size_t>(piece);
    lane.post(*meetings_[p], s, sent_[s][p]++);
}

const std::vector<const std::byte*>& Pieces::await(size_t r, int64_t piece) {
    const auto p = static_cast<size_t>(piece);
    return meetings_[p]->await_posted(r, received_[r][p]);
}

void Pieces::release(size_t r, int64_t count) {
    for (size_t p = 0; p < static_cast<size_t>(count); ++p)
        meetings_[p]->release(r, received_[r][p]++);
}

void Pieces::wake() {
    for (auto& meeting : meetings_) meeting->wake();
}

Outgoing::Outgoing(Pieces& pieces, size_t s, const Participant& self, int64_t count,
                   std::function<void(int64_t)> copy)
    : pieces_(pieces),
      s_(s),
      self_(self),
      stream_(self.device.stream()),
      count_(count),
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
        pieces_.post(self_.lane, s_, posted_);
    }
}

}  // namespace cleave::runtime
