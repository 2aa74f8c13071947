// SPDX-License-Identifier: Apache-2.0
// Threads that are joined whatever happens: also when one of several cannot be started, as under a
// container's limit of processes. One owner starts and joins them.
#pragma once

#include <functional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/errors.h"

namespace cleave {

inline UserError no_thread(const std::system_error& error) {
    return {
        "a thread cannot be started ({}); use fewer ($threads), or raise the limit of threads "
        "(ulimit -u, pids.max of a container)",
        error.code().message()};
}

// UserError with the reason when the system gives no thread.
template <class Body>
std::thread start_thread(Body&& body) {
    try {
        return std::thread(std::forward<Body>(body));
    } catch (const std::system_error& error) {
        throw no_thread(error);
    }
}

class Threads {
public:
    // `stop` asks threads to end that would not by themselves; the destructor calls it where they
    // were not joined before. It must not throw.
    explicit Threads(std::function<void()> stop = {}) : stop_(std::move(stop)) {}
    ~Threads() {
        if (stop_ && !threads_.empty()) stop_();
        join();
    }
    Threads(const Threads&) = delete;
    Threads& operator=(const Threads&) = delete;

    // `body` must not throw.
    template <class Body>
    void start(Body&& body) {
        threads_.reserve(threads_.size() + 1);  // before there is one to lose
        threads_.push_back(start_thread(std::forward<Body>(body)));
    }
    void join() {
        for (std::thread& thread : threads_) thread.join();
        threads_.clear();
    }
    size_t size() const { return threads_.size(); }
    bool empty() const { return threads_.empty(); }

private:
    std::function<void()> stop_;
    std::vector<std::thread> threads_;
};

}  // namespace cleave
