// SPDX-License-Identifier: Apache-2.0
// Abandoned contexts and calls of one driver: contexts whose work did not end, and calls that did
// not return. They are never destroyed. Any call that gives something of their card back would wait
// for them, so everything that shares the card asks here first. Thread-safe.
#pragma once

#include <functional>
#include <mutex>
#include <vector>

namespace cleave::runtime {

class GpuContext;

class LeftAlone {
public:
    // From now on `context` of card `ordinal` is only asked whether it is idle. It must live as
    // long as the process.
    void add(int ordinal, GpuContext& context);
    // A call to the driver about card `ordinal`. `has_ended` must not ask the driver.
    void add(int ordinal, std::function<bool()> has_ended);

    // Whether one of the card's still works; those that have ended at last are forgotten. While a
    // call hangs in the driver nothing more of its card is asked there.
    bool works_on(int ordinal);
    // Whether one of any card's does.
    bool works();

private:
    struct One {
        int ordinal;
        bool is_call;
        std::function<bool()> has_ended;
    };
    bool works_among(const std::function<bool(const One&)>& these);

    std::mutex mutex_;
    std::vector<One> all_;
};

}  // namespace cleave::runtime
