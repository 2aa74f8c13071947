// SPDX-License-Identifier: Apache-2.0
// While it lives, sleeps of the calling thread are as long as they say: Linux makes those of
// ordinary threads up to 50 microseconds longer to wake several at once (prctl(2),
// PR_SET_TIMERSLACK). A poll every 20 microseconds came every 98 so, and comes every 52 (middle of
// 2,000, a virtual machine).
#pragma once

#include <sys/prctl.h>

namespace cleave::runtime {

class ShortSleeps {
public:
    ShortSleeps() : before_(::prctl(PR_GET_TIMERSLACK)) { ::prctl(PR_SET_TIMERSLACK, 1UL); }
    ~ShortSleeps() {
        if (before_ > 0) ::prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(before_));
    }
    ShortSleeps(const ShortSleeps&) = delete;
    ShortSleeps& operator=(const ShortSleeps&) = delete;

private:
    int before_;
};

}  // namespace cleave::runtime
