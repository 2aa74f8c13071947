// SPDX-License-Identifier: Apache-2.0
#include "runtime/drivers/gpu/gpu_waits.h"

#include <algorithm>

#include "runtime/base/threads.h"

namespace cleave::runtime {

namespace {

constexpr std::chrono::microseconds kPoll{50};

}  // namespace

std::shared_ptr<GpuWaits::Call> GpuWaits::start(std::function<void()> act) {
    auto call = std::make_shared<Call>();
    start_thread([call, act = std::move(act)]() mutable {
        try {
            act();
        } catch (...) {
            call->error = std::current_exception();
        }
        act = nullptr;  // what it holds goes before anybody hears that it has ended
        call->ended = true;
    }).detach();
    return call;
}

bool GpuWaits::ends_soon(const std::shared_ptr<Call>& call) {
    const auto until = Clock::now() + settle_time_;
    while (!call->ended) {
        if (must_be_left() || Clock::now() > until) {
            abandoned_ = true;
            driver_->left_alone().add(ordinal_, [call] { return call->ended.load(); });
            return false;
        }
        std::this_thread::sleep_for(kPoll);
    }
    return true;
}

void GpuWaits::settle(GpuContext& context) noexcept {
    const auto until = Clock::now() + settle_time_;
    try {
        // Asked first: with a call that hangs in the driver the next one might.
        while (!must_be_left() && !context.is_idle()) {
            if (Clock::now() > until) {
                abandoned_ = true;
                driver_->left_alone().add(ordinal_, context);
                return;
            }
            std::this_thread::sleep_for(kPoll);
        }
    } catch (const DeviceError&) {  // NOLINT(bugprone-empty-catch)
        // A device with a fault does nothing more.
    }
}

bool GpuWaits::must_be_left() const {
    LeftAlone& left = driver_->left_alone();
    return abandoned_ || left.works_on(ordinal_) ||
           std::any_of(reached_by_.begin(), reached_by_.end(),
                       [&](int card) { return left.works_on(card); });
}

}  // namespace cleave::runtime
