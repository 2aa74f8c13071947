// SPDX-License-Identifier: Apache-2.0
// What the workers of one Session share while they run: whether one has failed, whether the user
// interrupted, and a count of finished steps: while it grows, a wait is not a hang.
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "runtime/base/cancel.h"

namespace cleave::runtime {

// Thrown in a worker that stops because another one failed; never reaches the caller.
struct Stopped {};

// A thread is one of a count while this lives.
template <class Number>
class Counted {
public:
    explicit Counted(std::atomic<Number>& count) : count_(count) { ++count_; }
    ~Counted() { --count_; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;

private:
    std::atomic<Number>& count_;
};

class RunControl {
public:
    RunControl(int watchdog_seconds, const CancelToken* cancel, bool may_spin)
        : watchdog_seconds_(watchdog_seconds), may_spin_(may_spin), cancel_(cancel) {}

    void stop() { stopped_.store(true, std::memory_order_relaxed); }
    bool stopped() const { return stopped_.load(std::memory_order_relaxed); }
    void throw_if_stopped() const {
        if (stopped()) throw Stopped();
        if (cancel_) cancel_->throw_if_cancelled();
    }

    void step_done() { progress_.fetch_add(1, std::memory_order_relaxed); }
    uint64_t progress() const {
        return progress_.load(std::memory_order_relaxed) +
               (others_ ? others_->load(std::memory_order_relaxed) : 0);
    }
    const std::atomic<uint64_t>& own_progress() const { return progress_; }
    // Steps of other processes count, too. Before any thread asks.
    void watch(const std::atomic<uint64_t>& others) { others_ = &others; }
    // Workers that are in a pass.
    std::atomic<int>& in_pass() { return in_pass_; }
    int watchdog_seconds() const { return watchdog_seconds_; }
    bool may_spin() const { return may_spin_; }

private:
    int watchdog_seconds_;
    bool may_spin_;
    const CancelToken* cancel_;
    const std::atomic<uint64_t>* others_ = nullptr;
    std::atomic<bool> stopped_{false};
    std::atomic<uint64_t> progress_{0};
    std::atomic<int> in_pass_{0};
};

}  // namespace cleave::runtime
