// SPDX-License-Identifier: Apache-2.0
// How the host waits for a card, so that every wait can be ended: by polling, also of calls that
// wait inside the driver's library for as long as kernels run (to load one, to allocate), which
// threads of their own make. One of these for each GPU's device, used by the device's thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <type_traits>
#include <utility>

#include "runtime/base/short_sleeps.h"
#include "runtime/drivers/gpu/gpu_driver.h"

namespace cleave::runtime {

class GpuWaits {
public:
    GpuWaits(std::shared_ptr<GpuDriver> driver, int ordinal, std::chrono::milliseconds settle_time)
        : driver_(std::move(driver)), ordinal_(ordinal), settle_time_(settle_time) {}
    GpuWaits(const GpuWaits&) = delete;
    GpuWaits& operator=(const GpuWaits&) = delete;

    // Called again and again while a wait lasts; what it throws ends the wait. Empty: none.
    void set_check(std::function<void()> check) { check_ = std::move(check); }

    // Returns when `done()`. Polls rather than blocks: nobody could end a call that blocks. Short
    // waits, as for a token, keep the core.
    template <class Done>
    void until(Done done) const {
        const auto patient = Clock::now() + std::chrono::milliseconds(1);
        std::optional<ShortSleeps> asleep;
        while (!done()) {
            if (check_) check_();
            if (Clock::now() < patient) {
                std::this_thread::yield();
                continue;
            }
            if (!asleep) asleep.emplace();
            std::this_thread::sleep_for(std::chrono::microseconds(20));
        }
    }

    // `take(act())`, where `act` makes a call that may wait inside the driver. It runs on another
    // thread, and nothing that it uses may go while it does: of the device only its context, which
    // stays when the device is left alone. That is what becomes of it when the wait is ended and
    // the call does not end in the settling time; else what it gave is taken, too.
    template <class Act, class Take>
    void call(Act act, Take take) {
        auto result = std::make_shared<std::invoke_result_t<Act>>();
        const auto started =
            start([result, act = std::move(act), driver = driver_] { *result = act(); });
        try {
            if (check_) check_();
            until([&] { return started->ended.load(); });
        } catch (...) {
            if (ends_soon(started) && !started->error) take(*result);
            throw;
        }
        if (started->error) std::rethrow_exception(started->error);
        ++ended_calls_;
        take(*result);
    }
    uint64_t ended_calls() const { return ended_calls_; }

    // After an error: waits for the work that is left in `context`, for a bounded time. What does
    // not end in it is left alone.
    void settle(GpuContext& context) noexcept;

    // Whether a call that gives memory, kernels or the context back would wait for work that does
    // not end: this device's, that of another on the same card, or that of a card which was given
    // access to this one's memory.
    bool must_be_left() const;
    void add_reached_by(int card) { reached_by_.insert(card); }

private:
    using Clock = std::chrono::steady_clock;
    struct Call {
        std::exception_ptr error;
        std::atomic<bool> ended{false};
    };
    static std::shared_ptr<Call> start(std::function<void()> act);
    bool ends_soon(const std::shared_ptr<Call>& call);

    std::shared_ptr<GpuDriver> driver_;
    int ordinal_;
    std::chrono::milliseconds settle_time_;
    std::function<void()> check_;
    std::set<int> reached_by_;  // other cards that reach its memory
    uint64_t ended_calls_ = 0;
    bool abandoned_ = false;
};

}  // namespace cleave::runtime
