// SPDX-License-Identifier: Apache-2.0
// Waits for a device before the first pass, when nobody else watches them: while an object of it
// lives they end when the user interrupts, and with a DeviceError when the device has done nothing
// for so many seconds. One thread at a time, the device's.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "runtime/base/cancel.h"
#include "runtime/base/errors.h"
#include "runtime/device/async_device.h"

namespace cleave::runtime {

class BoundedWaits {
public:
    // What else ends a wait, by throwing, and what else changes whenever something was done; either
    // may be empty.
    struct Also {
        std::function<void()> stop;
        std::function<int64_t()> progress;
    };

    // `what` is done meanwhile, for the message. `cancel` may be null. Nothing of a device that has
    // done all when a call returns.
    BoundedWaits(Device& device, std::string what, int seconds, const CancelToken* cancel,
                 Also also = {})
        : device_(device),
          what_(std::move(what)),
          limit_(seconds),
          cancel_(cancel),
          also_(std::move(also)) {
        if (DeviceStream* stream = device_.stream()) stream->set_wait_check([this] { check(); });
    }
    ~BoundedWaits() {
        if (DeviceStream* stream = device_.stream()) stream->set_wait_check(nullptr);
    }
    BoundedWaits(const BoundedWaits&) = delete;
    BoundedWaits& operator=(const BoundedWaits&) = delete;

private:
    using Clock = std::chrono::steady_clock;

    // Called many times a millisecond while a wait lasts: after a pause it is another wait.
    void check() {
        constexpr std::chrono::seconds kPause{1};
        if (cancel_) cancel_->throw_if_cancelled();
        if (also_.stop) also_.stop();
        const Clock::time_point now = Clock::now();
        const int64_t progress = static_cast<int64_t>(device_.stream()->ended_calls()) +
                                 (also_.progress ? also_.progress() : 0);
        if (now - last_ > kPause || progress != seen_) begin_ = now;
        last_ = now;
        seen_ = progress;
        if (now - begin_ > limit_)
            throw DeviceError(what_,
                              fmt::format("the device has done nothing for {} s", limit_.count()),
                              device_.info().name);
    }

    Device& device_;
    std::string what_;
    std::chrono::seconds limit_;
    const CancelToken* cancel_;
    Also also_;
    Clock::time_point begin_, last_;
    int64_t seen_ = 0;
};

}  // namespace cleave::runtime
