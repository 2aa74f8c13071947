// SPDX-License-Identifier: Apache-2.0
#include "runtime/rendezvous.h"

#include <algorithm>
#include <chrono>

#include <fmt/ranges.h>

namespace cleave::runtime {

namespace {

// How often a blocked waiter looks whether the user has interrupted: nothing can notify from a signal handler.
constexpr auto kTick = std::chrono::milliseconds(50);

}  // namespace

Rendezvous::Rendezvous(RunControl& control, std::string step, std::vector<std::string> senders,
                       std::vector<std::string> receivers)
    : control_(control),
      step_(std::move(step)),
      posted_(control.may_spin()),
      released_(control.may_spin()),
      payloads_(senders.size(), nullptr) {
    posted_.rounds.assign(senders.size(), 0);
    posted_.names = std::move(senders);
    released_.rounds.assign(receivers.size(), 0);
    released_.names = std::move(receivers);
}

void Rendezvous::post(size_t s, uint64_t round, const std::byte* payload) {
    payloads_[s] = payload;  // published by the lock in `advance`; receivers look after it
    advance(posted_, s, round);
}

void Rendezvous::await_released(uint64_t round, const std::string& waiter) {
    wait(released_, round, waiter);
}

const std::vector<const std::byte*>& Rendezvous::await_posted(size_t r, uint64_t round) {
    wait(posted_, round, released_.names[r]);
    return payloads_;
}

void Rendezvous::release(size_t r, uint64_t round) { advance(released_, r, round); }

void Rendezvous::advance(Side& side, size_t member, uint64_t round) {
    {
        std::lock_guard lock(mutex_);
        side.rounds[member] = round + 1;
        uint64_t complete = *std::min_element(side.rounds.begin(), side.rounds.end());
        if (complete == side.complete.load(std::memory_order_relaxed)) return;
        side.complete.store(complete, std::memory_order_release);
    }
    changed_.notify_all();
}

void Rendezvous::wake() {
    std::lock_guard lock(mutex_);
    changed_.notify_all();
}

void Rendezvous::wait(Side& side, uint64_t round, const std::string& waiter) {
    using Clock = std::chrono::steady_clock;
    auto ready = [&] { return side.complete.load(std::memory_order_acquire) > round; };
    if (side.spin.spin(ready)) return;
    uint64_t progress = control_.progress();
    Clock::time_point moved = Clock::now();
    std::unique_lock lock(mutex_);
    while (!ready()) {
        control_.throw_if_stopped();
        changed_.wait_for(lock, kTick);
        if (control_.progress() != progress) {
            progress = control_.progress();
            moved = Clock::now();
        } else if (Clock::now() - moved > std::chrono::seconds(control_.watchdog_seconds()) &&
                   !ready()) {
            std::vector<std::string> missing;
            for (size_t i = 0; i < side.rounds.size(); ++i) {
                if (side.rounds[i] <= round) missing.push_back(side.names[i]);
            }
            throw DeviceError(
                step_,
                fmt::format("{} never reached this step, and no device has finished one for {} s",
                            fmt::join(missing, ", "), control_.watchdog_seconds()),
                waiter);
        }
    }
}

StagingLane::StagingLane(std::string owner, std::byte* memory, int64_t bytes)
    : owner_(std::move(owner)),
      own_(memory != nullptr ? 0 : static_cast<size_t>(bytes)),
      bytes_(bytes) {
    memory_ = memory != nullptr ? memory : own_.data();
}

std::byte* StagingLane::open(int64_t bytes) {
    CHECK(bytes <= bytes_) << owner_ << " sends " << bytes
                           << " bytes at once; the plan has room for " << bytes_;
    if (last_ != nullptr) last_->await_released(last_round_, owner_);
    return memory_;
}

void StagingLane::post(Rendezvous& meeting, size_t s, uint64_t round) {
    last_ = &meeting;
    last_round_ = round;
    meeting.post(s, round, memory_);
}

}  // namespace cleave::runtime
