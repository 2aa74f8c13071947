// SPDX-License-Identifier: Apache-2.0
// What a stream of any fake is to another library's fake: work goes in, in order. A handle is a
// pointer to this.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace cleave::fake {

using Work = std::function<void()>;

struct WorkQueue {
    virtual ~WorkQueue() = default;
    virtual uint64_t submit(Work work) = 0;  // its ticket
};

// One without a card: whoever holds it does the work.
struct HeldStream final : WorkQueue {
    std::vector<Work> queue;
    uint64_t submit(Work work) override {
        queue.push_back(std::move(work));
        return queue.size();
    }
    void finish() {
        std::vector<Work> all;
        all.swap(queue);
        for (const Work& work : all) work();
    }
};

}  // namespace cleave::fake
