// SPDX-License-Identifier: Apache-2.0
#include "runtime/drivers/gpu/stream_points.h"

#include <algorithm>
#include <utility>

namespace cleave::runtime {

void StreamPoints::make_fences() {
    for (GpuEvent& fence : fences_)
        if (!fence) fence = context_.make_event(false);
}

void StreamPoints::before_operation() {
    ++operations_;
    if (operations_ - std::max(fenced_operations_, passed_operations_) < kFenceEvery) return;
    GpuEvent& fence = fences_[next_fence_];
    next_fence_ = 1 - next_fence_;
    make_fences();
    if (point_of_[fence].operations > passed_operations_) await(fence);
    record(fence);
    fenced_operations_ = operations_;
}

void StreamPoints::record(GpuEvent event) {
    context_.record(event);
    point_of_[event] = {++asked_, ++operations_};
}

void StreamPoints::await(GpuEvent event) {
    waits_.until([&] { return context_.has_passed(event); });
    const auto at = point_of_.find(event);
    if (at == point_of_.end()) return;
    passed_ = std::max(passed_, at->second.number);
    passed_operations_ = std::max(passed_operations_, at->second.operations);
}

void StreamPoints::release() noexcept {
    for (GpuEvent& event : fences_)
        if (GpuEvent old = std::exchange(event, nullptr))
            try_to([&] { context_.destroy_event(old); });
}

}  // namespace cleave::runtime
