// SPDX-License-Identifier: Apache-2.0
// The threads of one host device: the caller and `threads - 1` helpers that run one function together. Starting
// and finishing costs a few microseconds. Helpers block between runs; they spin for a bounded moment first only
// when the process has no more threads than cores (`may_spin`), so many devices on few cores waste no time.
// One thread at a time calls `run`.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "runtime/drivers/spin.h"

namespace cleave::runtime {

// Cores that this process may run on.
int available_cores();

class ThreadTeam {
public:
    using Work = void (*)(void* context, int thread, int threads);

    ThreadTeam(int threads, bool may_spin);
    ~ThreadTeam();
    ThreadTeam(const ThreadTeam&) = delete;
    ThreadTeam& operator=(const ThreadTeam&) = delete;

    int threads() const { return static_cast<int>(helpers_.size()) + 1; }

    // Calls work(context, i, threads()) once for every i, i = 0 on the calling thread; returns when all are done.
    // `work` must not throw.
    void run(Work work, void* context);

    // Splits [0, count) into one contiguous part a thread and calls body(begin, end, thread).
    template <class Body>
    void split(int64_t count, Body body) {
        struct Context {
            Body* body;
            int64_t count;
        } context{&body, count};
        run(
            [](void* opaque, int thread, int threads) {
                auto* c = static_cast<Context*>(opaque);
                int64_t begin = c->count * thread / threads,
                        end = c->count * (thread + 1) / threads;
                if (begin < end) (*c->body)(begin, end, thread);
            },
            &context);
    }

private:
    void helper(int thread);

    bool may_spin_;
    SpinBudget spin_;  // of the caller, waiting for its helpers
    std::vector<std::thread> helpers_;
    Work work_ = nullptr;
    void* context_ = nullptr;
    alignas(64) std::atomic<uint32_t> epoch_{0};  // runs begun
    alignas(64) std::atomic<uint32_t> running_{0};
    std::atomic<bool> stop_{false};
};

}  // namespace cleave::runtime
