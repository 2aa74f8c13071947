// SPDX-License-Identifier: Apache-2.0
// Plans that do not wait for each other, as many at once as there are cores. What comes of it is
// the same on any number of threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <vector>

#include "runtime/base/thread_team.h"
#include "runtime/base/threads.h"

namespace cleave::planner {

// Calls work(i) for each i below `count`. Of several exceptions the one of the least i leaves it.
template <class Work>
void at_once(size_t count, const Work& work) {
    constexpr size_t kMost = 8;  // a large plan takes hundreds of megabytes
    std::atomic<size_t> next{0};
    std::vector<std::exception_ptr> failed(count);
    const auto run = [&] {
        for (size_t i = next++; i < count; i = next++) {
            try {
                work(i);
            } catch (...) {
                failed[i] = std::current_exception();
            }
        }
    };
    {
        Threads helpers;
        const size_t wanted =
            std::min({count, kMost, static_cast<size_t>(runtime::available_cores())});
        while (helpers.size() + 1 < wanted) {
            try {
                helpers.start(run);
            } catch (const UserError&) {
                break;  // no more threads: those that there are do it all
            }
        }
        run();
    }
    for (const std::exception_ptr& one : failed)
        if (one) std::rethrow_exception(one);
}

}  // namespace cleave::planner
