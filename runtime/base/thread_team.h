// SPDX-License-Identifier: Apache-2.0
// The threads of one host device: the caller and `threads - 1` helpers that run one function
// together. Starting and finishing costs a few microseconds. Helpers block between runs; they spin
// for a bounded moment first only when the process has no more threads than cores (`may_spin`), so
// many devices on few cores waste no time. One thread at a time calls `run`.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>

#include "runtime/base/spin.h"
#include "runtime/base/threads.h"

namespace cleave::runtime {

// Cores that this process may run on.
int available_cores();

// Of `threads`, or where that is 0 of the cores, for each of several that run at once: at least
// one. As given, 0 too, for one alone.
int threads_of_each(int threads, int64_t count);

class ThreadTeam {
public:
    using Work = void (*)(void* context, int thread, int threads);

    // UserError where the system gives fewer threads.
    ThreadTeam(int threads, bool may_spin);
    ThreadTeam(const ThreadTeam&) = delete;
    ThreadTeam& operator=(const ThreadTeam&) = delete;

    int threads() const { return static_cast<int>(helpers_.size()) + 1; }

    // Calls work(context, i, threads()) once for every i, i = 0 on the calling thread; returns when
    // all are done. `work` must not throw.
    void run(Work work, void* context);

    // Splits [0, count) and calls body(begin, end, thread), for a thread several times. Each takes
    // a share of what is left whenever it is done with the last, so that all end together though
    // one core may be slower (guided self-scheduling: Polychronopoulos and Kuck, IEEE Transactions
    // on Computers 36(12), 1987), in pieces of `grain` at least. With halves given out beforehand
    // the helper had fallen asleep by the next launch and cost a wake-up: a sixth of a token of
    // 110M f32 on 2 cores.
    template <class Body>
    void split(int64_t count, Body body, int64_t grain = 1) {
        struct Context {
            Body* body;
            int64_t count, grain;
            alignas(64) std::atomic<int64_t> next;
        } context{&body, count, grain, 0};
        run(
            [](void* opaque, int thread, int threads) {
                auto* c = static_cast<Context*>(opaque);
                int64_t begin = c->next.load(std::memory_order_relaxed);
                while (begin < c->count) {
                    int64_t left = c->count - begin, shares = threads > 1 ? 2 * threads : 1;
                    int64_t end =
                        begin + std::min(left, std::max(c->grain, (left + shares - 1) / shares));
                    if (!c->next.compare_exchange_weak(begin, end, std::memory_order_relaxed))
                        continue;
                    (*c->body)(begin, end, thread);
                    begin = c->next.load(std::memory_order_relaxed);
                }
            },
            &context);
    }

private:
    void helper(int thread);
    void stop();

    bool may_spin_;
    SpinBudget spin_;  // of the caller, waiting for its helpers
    Work work_ = nullptr;
    void* context_ = nullptr;
    alignas(64) std::atomic<uint32_t> epoch_{0};  // runs begun
    alignas(64) std::atomic<uint32_t> running_{0};
    std::atomic<bool> stop_{false};
    Threads helpers_;  // the last member: they end before the others go
};

}  // namespace cleave::runtime
