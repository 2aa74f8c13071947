// SPDX-License-Identifier: Apache-2.0
#include "runtime/rendezvous.h"

#include <algorithm>
#include <chrono>

#include <fmt/ranges.h>

#include "runtime/drivers/thread_team.h"

namespace cleave::runtime {

namespace {

// How often a blocked waiter looks whether the user has interrupted: nothing can notify from a signal handler.
constexpr auto kTick = std::chrono::milliseconds(50);

// Those whose latest round is before `target`.
std::string late(const std::vector<uint64_t>& rounds, uint64_t target, const std::vector<std::string>& names) {
    std::vector<std::string> missing;
    for (size_t i = 0; i < rounds.size(); ++i) {
        if (rounds[i] < target) missing.push_back(names[i]);
    }
    return fmt::format("{}", fmt::join(missing, ", "));
}

bool all_at(const std::vector<uint64_t>& rounds, uint64_t target) {
    return std::all_of(rounds.begin(), rounds.end(), [&](uint64_t r) { return r >= target; });
}

}  // namespace

Rendezvous::Rendezvous(RunControl& control, std::string step, std::vector<std::string> senders,
                       std::vector<std::string> receivers)
    : control_(control), step_(std::move(step)), senders_(std::move(senders)), receivers_(std::move(receivers)) {
    for (Slot& slot : slots_) {
        slot.memory.resize(senders_.size());
        slot.payloads.assign(senders_.size(), nullptr);
        slot.posted.assign(senders_.size(), 0);
        slot.released.assign(receivers_.size(), 0);
    }
}

std::byte* Rendezvous::open(size_t s, uint64_t round, int64_t bytes) {
    Slot& slot = slots_[round % kSlots];
    std::unique_lock lock(mutex_);
    if (round >= kSlots) {
        uint64_t last = round - kSlots + 1;  // the round that used this slot before, plus one
        wait(lock, senders_[s], [&] { return all_at(slot.released, last); },
             [&] { return late(slot.released, last, receivers_); });
    }
    std::vector<std::byte>& memory = slot.memory[s];
    if (memory.size() < static_cast<size_t>(bytes)) memory.resize(static_cast<size_t>(bytes));
    slot.payloads[s] = memory.data();
    return memory.data();
}

void Rendezvous::post(size_t s, uint64_t round) {
    Slot& slot = slots_[round % kSlots];
    {
        std::lock_guard lock(mutex_);
        slot.posted[s] = round + 1;
        if (!all_at(slot.posted, round + 1)) return;
        completions_.fetch_add(1, std::memory_order_release);
    }
    changed_.notify_all();
}

const std::vector<const std::byte*>& Rendezvous::await(size_t receiver, uint64_t round) {
    Slot& slot = slots_[round % kSlots];
    std::unique_lock lock(mutex_);
    wait(lock, receivers_[receiver], [&] { return all_at(slot.posted, round + 1); },
         [&] { return late(slot.posted, round + 1, senders_); });
    return slot.payloads;
}

void Rendezvous::release(size_t r, uint64_t round) {
    Slot& slot = slots_[round % kSlots];
    {
        std::lock_guard lock(mutex_);
        slot.released[r] = round + 1;
        if (!all_at(slot.released, round + 1)) return;
        completions_.fetch_add(1, std::memory_order_release);
    }
    changed_.notify_all();
}

void Rendezvous::wake() {
    std::lock_guard lock(mutex_);
    completions_.fetch_add(1, std::memory_order_release);
    changed_.notify_all();
}

void Rendezvous::wait(std::unique_lock<std::mutex>& lock, const std::string& waiter,
                      const std::function<bool()>& ready, const std::function<std::string()>& missing) {
    using Clock = std::chrono::steady_clock;
    if (control_.may_spin() && !ready()) {
        uint64_t seen = completions_.load(std::memory_order_relaxed);
        lock.unlock();
        spin_until([&] { return completions_.load(std::memory_order_acquire) != seen; });
        lock.lock();
    }
    uint64_t progress = control_.progress();
    Clock::time_point moved = Clock::now();
    while (!ready()) {
        control_.throw_if_stopped();
        changed_.wait_for(lock, kTick);
        if (control_.progress() != progress) {
            progress = control_.progress();
            moved = Clock::now();
        } else if (Clock::now() - moved > std::chrono::seconds(control_.watchdog_seconds()) && !ready()) {
            throw DeviceError(step_, fmt::format("no device has finished a step for {} s, and {} never reached this one",
                                                 control_.watchdog_seconds(), missing()),
                              waiter);
        }
    }
}

}  // namespace cleave::runtime
