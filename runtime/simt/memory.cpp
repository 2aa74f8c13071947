// SPDX-License-Identifier: Apache-2.0
#include "runtime/simt/memory.h"

#include <cerrno>
#include <mutex>

#include <sys/mman.h>

#include "runtime/base/errors.h"

namespace cleave::runtime::simt {

constinit Slot slot_table[kNumSlots];

namespace {

// Of the table: slots are read without it.
std::mutex mutex;
uint32_t next_slot = 1;

uint64_t page_round(uint64_t bytes) { return (bytes + 4095) & ~uint64_t{4095}; }

// The first of `count` free slots in a row, searched from the least recently used on; 0: none.
uint32_t find_free(uint32_t count) {
    for (uint32_t tried = 0; tried < kNumSlots; ++tried) {
        uint32_t first = 1 + (next_slot - 1 + tried) % (kNumSlots - 1);
        if (first + count > kNumSlots) continue;
        uint32_t i = 0;
        while (i < count && slot_table[first + i].end == 0) ++i;
        if (i == count) return first;
    }
    return 0;
}

// Null with errno when it cannot be had.
void* map_slot(uint32_t first, uint64_t bytes) {
    auto* wanted = reinterpret_cast<void*>(kSlotBase + uint64_t{first} * kSlotBytes + kSlotMargin);
    void* mapped = ::mmap(wanted, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    if (mapped == wanted) return mapped;
    ::munmap(mapped, bytes);  // a kernel older than MAP_FIXED_NOREPLACE chose otherwise
    errno = EEXIST;
    return nullptr;
}

}  // namespace

void* allocate_slots(uint64_t bytes, uint32_t owner) {
    std::lock_guard lock(mutex);
    auto count = static_cast<uint32_t>((kSlotMargin + bytes + kSlotBytes - 1) >> 32);
    void* mapped = nullptr;
    uint32_t first = 0;
    // Another copy of this code in the process, with a table of its own, may have taken an address:
    // go on behind it.
    for (uint32_t tried = 0; tried < kNumSlots && !mapped; ++tried) {
        first = find_free(count);
        if (first == 0) return nullptr;
        mapped = map_slot(first, page_round(bytes));
        if (!mapped && errno != EEXIST) return nullptr;
        next_slot = first + count;
    }
    if (!mapped) return nullptr;
    for (uint32_t i = 0; i < count; ++i) {
        uint64_t end = kSlotMargin + bytes - i * kSlotBytes;
        slot_table[first + i].owner = owner;
        slot_table[first + i].begin = i == 0 ? kSlotMargin : 0;
        // Full slots: an access may straddle the border to the next.
        slot_table[first + i].end = end > kSlotBytes ? kSlotBytes + 16 : end;
    }
    slot_table[first].slots = count;
    return mapped;
}

AddressRange allocation_of(uint64_t address) {
    std::lock_guard lock(mutex);
    const Slot* slot = slot_of(address);
    if (!slot || slot->end == 0) return {};
    auto first = static_cast<uint32_t>(slot - slot_table);
    while (first > 0 && slot_table[first].slots == 0) --first;
    const uint32_t last = first + slot_table[first].slots - 1;
    return {kSlotBase + first * kSlotBytes + kSlotMargin,
            kSlotBase + last * kSlotBytes + slot_table[last].end};
}

void watch_slots(void* address, ExchangeMemory* exchange) {
    std::lock_guard lock(mutex);
    const auto first =
        static_cast<uint32_t>((reinterpret_cast<uint64_t>(address) - kSlotBase) >> 32);
    CLEAVE_CHECK(first < kNumSlots && slot_table[first].slots > 0)
        << "watching what is no device allocation";
    for (uint32_t i = 0; i < slot_table[first].slots; ++i)
        slot_table[first + i].exchange = exchange;
}

void free_slots(void* address) {
    std::lock_guard lock(mutex);
    auto value = reinterpret_cast<uint64_t>(address);
    auto first = static_cast<uint32_t>((value - kSlotBase) >> 32);
    CLEAVE_CHECK(first < kNumSlots && slot_table[first].slots > 0)
        << "freeing what is no device allocation";
    uint32_t count = slot_table[first].slots;
    uint64_t bytes = (count - 1) * kSlotBytes + slot_table[first + count - 1].end - kSlotMargin;
    ::munmap(address, page_round(bytes));
    for (uint32_t i = 0; i < count; ++i) {
        slot_table[first + i].begin = 0;
        slot_table[first + i].end = 0;
    }
    slot_table[first].slots = 0;
}

}  // namespace cleave::runtime::simt
