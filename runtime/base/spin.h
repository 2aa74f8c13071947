// SPDX-License-Identifier: Apache-2.0
// A brief poll before blocking. It saves the microseconds of a sleep and a wake-up when the other
// thread runs on a core of its own, and only costs them when it does not; so each waiting place
// learns from its last polls: one that failed halves the next, down to none, with a new try now and
// then. (Measured with busy neighbours on 2 cores: a launch over 2 threads takes 4 us with blocking
// waits, 86 us and more with polls that insist.)
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace cleave::runtime {

class SpinBudget {
public:
    explicit SpinBudget(bool allowed) : allowed_(allowed) {}

    // Polls `ready` for at most the budget; whether it came true.
    template <class Ready>
    bool spin(Ready&& ready) {
        if (!allowed_) return ready();
        int64_t budget = budget_.load(std::memory_order_relaxed);
        if (budget < kLeast) {
            if (skipped_.fetch_add(1, std::memory_order_relaxed) % kRetry != kRetry - 1)
                return ready();
            budget = kLeast;
        }
        bool came = poll(ready, budget);
        budget_.store(came ? (budget * 2 < kMost ? budget * 2 : kMost) : budget / 2,
                      std::memory_order_relaxed);
        return came;
    }

private:
    static constexpr int64_t kMost = 40'000, kLeast = 2'000;  // nanoseconds
    static constexpr uint32_t kRetry = 64;

    template <class Ready>
    static bool poll(Ready& ready, int64_t budget) {
        auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(budget);
        for (uint32_t i = 1;; ++i) {
            if (ready()) return true;
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
            if (i % 16 == 0 && std::chrono::steady_clock::now() > until) return false;
        }
    }

    bool allowed_;
    std::atomic<int64_t> budget_{kMost};
    std::atomic<uint32_t> skipped_{0};
};

}  // namespace cleave::runtime
