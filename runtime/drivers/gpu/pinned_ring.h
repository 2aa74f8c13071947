// SPDX-License-Identifier: Apache-2.0
// Two blocks of pinned memory that uploads leave from in turn: one is filled while the device still
// copies from the other. Small pieces share a block. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "runtime/drivers/gpu/gpu_driver.h"

namespace cleave::runtime {

class PinnedRing {
public:
    // `pin` gives pinned memory, which it keeps; `wait` returns when the stream has passed an
    // event.
    PinnedRing(GpuContext& context, std::function<std::byte*(int64_t)> pin,
               std::function<void(GpuEvent)> wait)
        : context_(context), pin_(std::move(pin)), wait_(std::move(wait)) {}
    PinnedRing(const PinnedRing&) = delete;
    PinnedRing& operator=(const PinnedRing&) = delete;

    // Room for `bytes`, which no copy reads any more, aligned to 256. Copies from it must be on the
    // stream before the next call. Throws what `pin` does.
    std::span<std::byte> take(int64_t bytes);
    // Makes its events, before anything runs: to make one may wait for kernels.
    void make_events();
    // Whether `bytes` lie in what `take` gave last.
    bool holds(std::span<const std::byte> bytes) const {
        return bytes.data() >= last_.data() &&
               bytes.data() + bytes.size() <= last_.data() + last_.size();
    }

    // Gives its events back; the owner calls it while its context lives.
    void release() noexcept;

    static constexpr int64_t kBlockBytes = int64_t{8} << 20;

private:
    struct Block {
        std::byte* memory = nullptr;
        int64_t bytes = 0, used = 0;
        GpuEvent event = nullptr;  // after the last copy from it
        bool in_flight = false;
    };
    void renew(Block& block, int64_t bytes);

    GpuContext& context_;
    std::function<std::byte*(int64_t)> pin_;
    std::function<void(GpuEvent)> wait_;
    std::array<Block, 2> blocks_;
    size_t current_ = 0;
    std::span<const std::byte> last_;
};

}  // namespace cleave::runtime
