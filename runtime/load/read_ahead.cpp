// SPDX-License-Identifier: Apache-2.0
#include "runtime/load/read_ahead.h"

#include <algorithm>

namespace cleave::runtime {

ReadAhead::ReadAhead(std::vector<Span> spans, std::function<void(Span)> ask)
    : spans_(std::move(spans)), ask_(std::move(ask)), starts_{0} {
    for (const Span& span : spans_) starts_.push_back(starts_.back() + span.size());
}

void ReadAhead::about_to_read(size_t i, size_t bytes) {
    const size_t end =
        std::min(starts_.back(), starts_.at(i) + std::min(bytes, spans_.at(i).size()) + kAhead);
    asked_ = std::max(asked_, starts_[i]);
    while (asked_ < end) {
        while (starts_[next_ + 1] <= asked_) ++next_;
        const size_t size = std::min(kPiece, starts_[next_ + 1] - asked_);
        ask_(spans_[next_].subspan(asked_ - starts_[next_], size));
        asked_ += size;
    }
}

}  // namespace cleave::runtime
