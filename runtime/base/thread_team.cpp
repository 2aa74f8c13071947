// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/thread_team.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace cleave::runtime {

int available_cores() {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        return CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : 1;
    unsigned count = std::thread::hardware_concurrency();
    return count > 0 ? static_cast<int>(count) : 1;
}

int threads_of_each(int threads, int64_t count) {
    if (count == 1) return threads;
    return static_cast<int>(
        std::max<int64_t>(1, (threads > 0 ? threads : available_cores()) / count));
}

ThreadTeam::ThreadTeam(int threads, bool may_spin)
    : may_spin_(may_spin), spin_(may_spin), helpers_([this] { stop(); }) {
    for (int i = 1; i < threads; ++i) helpers_.start([this, i] { helper(i); });
}

void ThreadTeam::stop() {
    stop_.store(true, std::memory_order_relaxed);
    epoch_.fetch_add(1, std::memory_order_release);
    epoch_.notify_all();
}

void ThreadTeam::run(Work work, void* context) {
    if (helpers_.empty()) return work(context, 0, 1);
    work_ = work;
    context_ = context;
    running_.store(static_cast<uint32_t>(helpers_.size()), std::memory_order_relaxed);
    epoch_.fetch_add(1, std::memory_order_release);
    epoch_.notify_all();
    work(context, 0, threads());
    auto done = [&] { return running_.load(std::memory_order_acquire) == 0; };
    if (spin_.spin(done)) return;
    for (uint32_t left; (left = running_.load(std::memory_order_acquire)) != 0;)
        running_.wait(left);
}

void ThreadTeam::helper(int thread) {
    uint32_t seen = 0;
    SpinBudget spin(may_spin_);
    for (;;) {
        auto changed = [&] { return epoch_.load(std::memory_order_acquire) != seen; };
        if (!spin.spin(changed)) epoch_.wait(seen, std::memory_order_acquire);
        if (!changed()) continue;
        ++seen;
        if (stop_.load(std::memory_order_relaxed)) return;
        work_(context_, thread, threads());
        if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
    }
}

}  // namespace cleave::runtime
