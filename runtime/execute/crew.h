// SPDX-License-Identifier: Apache-2.0
// The threads of an executor, one a member, and the hand-over of work to them. A crew of one has no
// thread: its caller does the work, with nobody to wait for.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>

#include "runtime/base/threads.h"

namespace cleave::runtime {

class Crew {
public:
    explicit Crew(size_t members);
    Crew(const Crew&) = delete;
    Crew& operator=(const Crew&) = delete;

    // Calls work(member) on every member's thread and returns when all have returned. `work` must
    // not throw. One caller at a time.
    void run(const std::function<void(size_t)>& work);

private:
    void serve(size_t member);
    void stop();

    std::mutex mutex_;  // of all below but the threads
    std::condition_variable wake_, done_;
    const std::function<void(size_t)>* work_ = nullptr;
    uint64_t generation_ = 0;  // of `work_`
    size_t running_ = 0;
    bool quit_ = false;
    Threads threads_;  // the last member: they end before the others go
};

}  // namespace cleave::runtime
