// SPDX-License-Identifier: Apache-2.0
#include "runtime/drivers/gpu/pinned_ring.h"

#include <algorithm>
#include <utility>

namespace cleave::runtime {

namespace {

constexpr int64_t kFirstBytes = int64_t{64} << 10;  // a block's size before anybody needs more

}  // namespace

std::span<std::byte> PinnedRing::take(int64_t bytes) {
    const int64_t aligned = (bytes + 255) / 256 * 256;
    Block* block = &blocks_[current_];
    if (block->used + aligned > block->bytes) {
        if (block->used > 0) {
            make_events();
            context_.record(block->event);
            block->in_flight = true;
            current_ = 1 - current_;
            block = &blocks_[current_];
        }
        if (block->in_flight) wait_(block->event);
        block->in_flight = false;
        block->used = 0;
        // Both, and so before anything runs if what passes need was asked for once: see
        // GpuDevice::load. A block that copies still read is left as it is.
        if (block->bytes < aligned)
            for (Block& each : blocks_) renew(each, aligned);
    }
    std::byte* memory = block->memory + block->used;
    block->used += aligned;
    last_ = {memory, static_cast<size_t>(bytes)};
    return {memory, static_cast<size_t>(bytes)};
}

void PinnedRing::make_events() {
    for (Block& block : blocks_)
        if (!block.event) block.event = context_.make_event(false);
}

void PinnedRing::renew(Block& block, int64_t bytes) {
    const int64_t wanted = std::max(bytes, kFirstBytes);
    block.bytes = block.used = 0;
    block.in_flight = false;
    block.memory = pin_(wanted);
    block.bytes = wanted;
}

void PinnedRing::release() noexcept {
    for (Block& block : blocks_) {
        try_to([&] {
            if (block.event) context_.destroy_event(std::exchange(block.event, nullptr));
        });
        block = {};
    }
    last_ = {};
}

}  // namespace cleave::runtime
