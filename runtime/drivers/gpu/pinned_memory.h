// SPDX-License-Identifier: Apache-2.0
// What memory of the host a driver has pinned, for all of its contexts. A copy to or from other
// memory may wait inside the driver for all that is on the stream: nobody could end that wait.
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace cleave::runtime {

class PinnedMemory {
public:
    void add(const std::byte* memory, int64_t bytes) {
        const std::lock_guard lock(mutex_);
        blocks_[memory] = bytes;
    }
    void remove(const std::byte* memory) {
        const std::lock_guard lock(mutex_);
        blocks_.erase(memory);
    }
    // Whether one of its blocks holds all of it.
    bool holds(const std::byte* memory, int64_t bytes) const {
        const std::lock_guard lock(mutex_);
        auto after = blocks_.upper_bound(memory);
        if (after == blocks_.begin()) return false;
        const auto& [begin, size] = *--after;
        return memory + bytes <= begin + size;
    }

private:
    mutable std::mutex mutex_;
    std::map<const std::byte*, int64_t> blocks_;
};

}  // namespace cleave::runtime
