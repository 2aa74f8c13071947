// SPDX-License-Identifier: Apache-2.0
// Memory and copies of the fakes. Device and pinned memory are in runtime/simt's slots, so that a
// checked kernel which leaves its device's allocations is found.
#include <algorithm>

#include "runtime/simt/memory.h"
#include "tests/runtime_fakes/fake_gpu.h"

namespace cleave::fake {

namespace {

constexpr size_t kMostPitch = 2'147'483'647;  // CU_DEVICE_ATTRIBUTE_MAX_PITCH of all cards

// A device, and those that were given access to its memory.
std::set<int> reached_by(int device) {
    std::set<int> devices{device};
    for (const auto* peers : {&state().peers, &state().pool_peers})
        for (const auto& [from, to] : *peers)
            if (to == device) devices.insert(from);
    return devices;
}

// What a destroyed pool holds ends with the last block of it.
void drop_if_empty(Pool* pool) {
    State& s = state();
    for (const auto& [address, block] : s.blocks)
        if (block.pool == pool) return;
    s.pools.erase(pool);
    delete pool;
}

}  // namespace

int allocate(uintptr_t* address, size_t bytes, const Card& card, Pool* pool) {
    State& s = state();
    if (s.used(current_device) + static_cast<int64_t>(bytes) > card.memory) return kOutOfMemory;
    void* memory = runtime::simt::allocate_slots(
        bytes, pool ? pool_owner_of(current_device) : owner_of(current_device));
    if (!memory) return kOutOfMemory;
    *address = reinterpret_cast<uintptr_t>(memory);
    s.blocks[*address] = {current_device, static_cast<int64_t>(bytes), pool};
    return 0;
}

int take_for_library(int device, int64_t bytes, const Card& card) {
    State& s = state();
    const std::lock_guard lock(s.mutex);
    if (bytes > 0 && s.used(device) + bytes > card.memory) return kOutOfMemory;
    s.libraries[static_cast<size_t>(device)] += bytes;
    return 0;
}

int make_pool(Pool** pool, int device) {
    *pool = new Pool{device};
    state().pools.insert(*pool);
    return 0;
}

Pool* find_pool(const void* handle) {
    auto* pool = static_cast<Pool*>(const_cast<void*>(handle));
    return state().pools.count(pool) && !pool->destroyed ? pool : nullptr;
}

int destroy_pool(void* handle) {
    Pool* pool = find_pool(handle);
    if (!pool) return kInvalidValue;
    pool->destroyed = true;
    drop_if_empty(pool);
    return 0;
}

int open_pool(void* handle, int to) {
    Pool* pool = find_pool(handle);
    if (!pool || to == pool->device) return kInvalidValue;
    state().pool_peers.insert({to, pool->device});
    return 0;
}

int free_block(Call& call, uintptr_t address, bool waits) {
    auto found = state().blocks.find(address);
    if (found == state().blocks.end() || found->second.device != current_device)
        return kInvalidValue;
    Pool* pool = found->second.pool;
    if (waits || !pool) settle(call, reached_by(current_device));
    state().blocks.erase(address);
    if (pool && pool->destroyed) drop_if_empty(pool);
    runtime::simt::free_slots(reinterpret_cast<void*>(address));
    return 0;
}

int allocate_pinned(void** memory, size_t bytes) {
    *memory = runtime::simt::allocate_slots(bytes, kPinnedOwner);
    if (!*memory) return kOutOfMemory;
    state().pinned[reinterpret_cast<uintptr_t>(*memory)] = static_cast<int64_t>(bytes);
    return 0;
}

int free_pinned(Call& call, void* memory) {
    if (state().pinned.count(reinterpret_cast<uintptr_t>(memory)) == 0) return kInvalidValue;
    settle(call, {0, 1, 2});  // every device's kernels see it
    state().pinned.erase(reinterpret_cast<uintptr_t>(memory));
    runtime::simt::free_slots(memory);
    return 0;
}

int fill(uintptr_t address, int value, size_t bytes, void* stream) {
    Stream* s = find_stream(stream);
    if (!s || !state().holds(address, static_cast<int64_t>(bytes), s->device)) return kInvalidValue;
    s->submit([=] { std::memset(reinterpret_cast<void*>(address), value, bytes); });
    return 0;
}

int copy(const Copy& c, void* stream) {
    Stream* s = find_stream(stream);
    if (!s || c.from_pitch < c.width || c.to_pitch < c.width || c.height == 0 ||
        std::max(c.from_pitch, c.to_pitch) > kMostPitch)
        return kInvalidValue;
    const auto span = [&](size_t pitch) {
        return static_cast<int64_t>(pitch * (c.height - 1) + c.width);
    };
    const bool to_is = state().holds(c.to, span(c.to_pitch), s->device);
    const bool from_is = state().holds(c.from, span(c.from_pitch), s->device);
    if (c.within ? !to_is || !from_is : c.to_device ? !to_is : !from_is) return kInvalidValue;
    const bool pinned = c.within      ? true
                        : c.to_device ? state().is_pinned(c.from, span(c.from_pitch))
                                      : state().is_pinned(c.to, span(c.to_pitch));
    // Of pageable memory no copy is asynchronous, nor can one be captured.
    if (!pinned) {
        ++state().calls["pageable copy"];
        if (s->capture) {
            s->capture->invalid = true;
            return kCaptureUnsupported;
        }
    }
    state().calls[c.within      ? "bytes within"
                  : c.to_device ? "bytes in"
                                : "bytes out"] += static_cast<int>(c.width * c.height);
    s->submit([c] {
        for (size_t row = 0; row < c.height; ++row)
            std::memcpy(reinterpret_cast<void*>(c.to + row * c.to_pitch),
                        reinterpret_cast<const void*>(c.from + row * c.from_pitch), c.width);
    });
    return 0;
}

}  // namespace cleave::fake
