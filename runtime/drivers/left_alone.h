// SPDX-License-Identifier: Apache-2.0
// Contexts of one driver whose work did not end: they were left alone, and are never destroyed. Any call that gives something
// of their card back would wait for them, so whoever shares the card asks here first. Thread-safe.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

namespace cleave::runtime {

class GpuContext;

class LeftAlone {
public:
    // From now on `context` of card `ordinal` is nobody's but to be asked whether it is idle. It must stay for ever.
    void add(int ordinal, GpuContext& context);

    // Whether one of the card's still works; those that have ended at last are forgotten.
    bool works_on(int ordinal);
    // Whether one of any card's does.
    bool works();

private:
    std::mutex mutex_;
    std::vector<std::pair<int, GpuContext*>> contexts_;
};

}  // namespace cleave::runtime
