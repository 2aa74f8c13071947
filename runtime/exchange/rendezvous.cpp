// SPDX-License-Identifier: Apache-2.0
#include "runtime/exchange/rendezvous.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <ctime>

#include <fmt/ranges.h>

namespace cleave::runtime {

namespace {

// How often a blocked waiter looks whether the user has interrupted: nothing can notify from a
// signal handler.
constexpr timespec kTick{0, 50'000'000};

// Sleeps while `word` is `seen`, for a tick at most. With a mutex and a condition variable every
// waiter would take the lock on waking, one after the other: many devices on few cores feel that.
// futex(2); word is a plain 32-bit cell.
static_assert(sizeof(std::atomic<uint32_t>) == 4 && std::atomic<uint32_t>::is_always_lock_free);
void sleep_while(std::atomic<uint32_t>& word, uint32_t seen) {
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, &kTick, nullptr, 0);
}
void wake_sleepers(std::atomic<uint32_t>& word) {
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

}  // namespace

Rendezvous::Rendezvous(RunControl& control, std::string step, std::vector<std::string> senders,
                       std::vector<std::string> receivers)
    : control_(control),
      step_(std::move(step)),
      posted_(std::move(senders), control.may_spin()),
      released_(std::move(receivers), control.may_spin()),
      payloads_(posted_.names.size(), nullptr) {}

void Rendezvous::post(size_t s, uint64_t round, const std::byte* payload) {
    payloads_[s] = payload;  // published by the count in `advance`; receivers look after it
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

// A waiter counts itself blocked before it looks at the arrivals, and the last to arrive counts
// itself before it looks for blocked waiters: one of the two sees the other, in the total order of
// these operations.
void Rendezvous::advance(Side& side, size_t member, uint64_t round) {
    side.rounds[member].store(round + 1, std::memory_order_relaxed);
    if ((side.arrivals.fetch_add(1) + 1) % side.names.size() != 0) return;
    changes_.fetch_add(1);
    if (blocked_.load() > 0) wake_sleepers(changes_);
}

void Rendezvous::wake() {
    changes_.fetch_add(1);
    wake_sleepers(changes_);
}

void Rendezvous::wait(Side& side, uint64_t round, const std::string& waiter) {
    using Clock = std::chrono::steady_clock;
    auto ready = [&] { return side.has_finished(round); };
    if (side.spin.spin(ready)) return;
    uint64_t progress = control_.progress();
    Clock::time_point moved = Clock::now();
    const Counted blocked(blocked_);
    for (;;) {
        uint32_t seen = changes_.load();
        if (ready()) return;
        control_.throw_if_stopped();
        sleep_while(changes_, seen);
        if (control_.progress() != progress) {
            progress = control_.progress();
            moved = Clock::now();
        } else if (Clock::now() - moved > std::chrono::seconds(control_.watchdog_seconds()) &&
                   !ready()) {
            report_hang(side, round, waiter);
        }
    }
}

void Rendezvous::report_hang(const Side& side, uint64_t round, const std::string& waiter) const {
    std::vector<std::string> missing;
    for (size_t i = 0; i < side.names.size(); ++i) {
        if (side.rounds[i].load(std::memory_order_relaxed) <= round)
            missing.push_back(side.names[i]);
    }
    throw DeviceError(
        step_,
        fmt::format("{} never reached this step, and no device has finished one for {} s",
                    fmt::join(missing, ", "), control_.watchdog_seconds()),
        waiter);
}

StagingLane::StagingLane(std::string owner, std::byte* memory, int64_t bytes, std::byte* arrivals,
                         int64_t arrival_bytes)
    : owner_(std::move(owner)),
      own_(memory != nullptr ? 0 : static_cast<size_t>(bytes)),
      own_arrivals_(arrivals != nullptr ? 0 : static_cast<size_t>(arrival_bytes)),
      memory_(memory != nullptr ? memory : own_.data()),
      arrivals_(arrivals != nullptr ? arrivals : own_arrivals_.data()),
      bytes_(bytes),
      arrival_bytes_(arrival_bytes) {}

std::byte* StagingLane::open(int64_t bytes) {
    CLEAVE_CHECK(bytes <= bytes_) << owner_ << " sends " << bytes
                                  << " bytes at once; the plan has room for " << bytes_;
    for (const auto& [meeting, round] : posted_) meeting->await_released(round, owner_);
    posted_.clear();
    return memory_;
}

std::byte* StagingLane::arrivals(int64_t bytes) {
    CLEAVE_CHECK(bytes <= arrival_bytes_)
        << owner_ << " gets " << bytes << " bytes of other hosts at once; the plan has room for "
        << arrival_bytes_;
    return arrivals_;
}

void StagingLane::post(Rendezvous& meeting, size_t s, uint64_t round) {
    posted_.emplace_back(&meeting, round);
    meeting.post(s, round, memory_);
}

}  // namespace cleave::runtime
