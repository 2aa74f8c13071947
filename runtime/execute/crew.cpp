// SPDX-License-Identifier: Apache-2.0
#include "runtime/execute/crew.h"

namespace cleave::runtime {

Crew::Crew(size_t members) : threads_([this] { stop(); }) {
    if (members == 1) return;
    for (size_t m = 0; m < members; ++m) threads_.start([this, m] { serve(m); });
}

void Crew::stop() {
    {
        const std::lock_guard lock(mutex_);
        quit_ = true;
    }
    wake_.notify_all();
}

void Crew::run(const std::function<void(size_t)>& work) {
    if (threads_.empty()) return work(0);
    std::unique_lock lock(mutex_);
    work_ = &work;
    running_ = threads_.size();
    ++generation_;
    wake_.notify_all();
    done_.wait(lock, [&] { return running_ == 0; });
}

void Crew::serve(size_t member) {
    uint64_t seen = 0;
    for (;;) {
        const std::function<void(size_t)>* mine = nullptr;
        {
            std::unique_lock lock(mutex_);
            wake_.wait(lock, [&] { return quit_ || generation_ != seen; });
            if (quit_) return;
            seen = generation_;
            mine = work_;
        }
        (*mine)(member);
        const std::lock_guard lock(mutex_);
        if (--running_ == 0) done_.notify_all();
    }
}

}  // namespace cleave::runtime
