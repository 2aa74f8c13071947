// SPDX-License-Identifier: Apache-2.0
// Waits for a device before the first pass, when nobody else watches them: while an object of it lives they end when `stop`
// throws, and with a DeviceError when the device has done nothing for so many seconds. In: `progress`, which changes whenever
// something was done. One thread at a time, the device's.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "runtime/base/errors.h"
#include "runtime/device_stream.h"

namespace cleave::runtime {

class BoundedWaits {
public:
    // `what` is done meanwhile, for the message. Nothing of a device that has done all when a call returns.
    BoundedWaits(Device& device, std::string what, int seconds, std::function<void()> stop,
                 std::function<int64_t()> progress)
        : device_(device),
          what_(std::move(what)),
          limit_(seconds),
          stop_(std::move(stop)),
          progress_(std::move(progress)) {
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
        stop_();
        const Clock::time_point now = Clock::now();
        const int64_t progress = progress_();
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
    std::function<void()> stop_;
    std::function<int64_t()> progress_;
    Clock::time_point begin_, last_;
    int64_t seen_ = 0;
};

}  // namespace cleave::runtime
