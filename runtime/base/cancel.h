// SPDX-License-Identifier: Apache-2.0
// Cooperative cancellation: the command line's Ctrl-C handler sets the flag; long work calls
// `throw_if_cancelled` between steps. Setting the flag is async-signal-safe; any thread may read
// it.
#pragma once

#include <atomic>

#include "runtime/base/errors.h"

namespace cleave {

class CancelToken {
public:
    void cancel() noexcept { flag_.store(true, std::memory_order_relaxed); }
    bool cancelled() const noexcept { return flag_.load(std::memory_order_relaxed); }
    void throw_if_cancelled() const {
        if (cancelled()) throw Cancelled();
    }

private:
    std::atomic<bool> flag_{false};
};

}  // namespace cleave
