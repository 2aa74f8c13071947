// SPDX-License-Identifier: Apache-2.0
#include "runtime/simt/memory.h"

#include <array>
#include <mutex>

#include <sys/mman.h>

#include "runtime/base/errors.h"

namespace cleave::runtime::simt {

namespace {

struct Table {
    std::array<Slot, kNumSlots> slots;
    std::mutex mutex;
    uint32_t next = 1;
};

Table& table() {
    static Table& t = *new Table;  // never destroyed: kernels of static objects may still run
    return t;
}

uint64_t page_round(uint64_t bytes) { return (bytes + 4095) & ~uint64_t{4095}; }

// The first of `count` free slots in a row, searched from the least recently used on; 0: none.
uint32_t find_free(Table& t, uint32_t count) {
    for (uint32_t tried = 0; tried < kNumSlots; ++tried) {
        uint32_t first = 1 + (t.next - 1 + tried) % (kNumSlots - 1);
        if (first + count > kNumSlots) continue;
        uint32_t i = 0;
        while (i < count && t.slots[first + i].end == 0) ++i;
        if (i == count) return first;
    }
    return 0;
}

}  // namespace

const Slot* slot_of(uint64_t address) {
    uint64_t index = (address - kSlotBase) >> 32;
    return index < kNumSlots ? &table().slots[index] : nullptr;
}

void* allocate_slots(uint64_t bytes, uint32_t owner) {
    Table& t = table();
    std::lock_guard lock(t.mutex);
    auto count = static_cast<uint32_t>((kSlotMargin + bytes + kSlotBytes - 1) >> 32);
    uint32_t first = find_free(t, count);
    if (first == 0) return nullptr;
    uint64_t address = kSlotBase + first * kSlotBytes + kSlotMargin;
    void* mapped = ::mmap(reinterpret_cast<void*>(address), page_round(bytes), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    if (mapped != reinterpret_cast<void*>(address)) {  // a kernel older than MAP_FIXED_NOREPLACE chose otherwise
        ::munmap(mapped, page_round(bytes));
        return nullptr;
    }
    for (uint32_t i = 0; i < count; ++i) {
        uint64_t end = kSlotMargin + bytes - i * kSlotBytes;
        t.slots[first + i].owner = owner;
        t.slots[first + i].begin = i == 0 ? kSlotMargin : 0;
        // Full slots: an access may straddle the border to the next.
        t.slots[first + i].end = end > kSlotBytes ? kSlotBytes + 16 : end;
    }
    t.slots[first].slots = count;
    t.next = first + count;
    return mapped;
}

void free_slots(void* address) {
    Table& t = table();
    std::lock_guard lock(t.mutex);
    auto value = reinterpret_cast<uint64_t>(address);
    auto first = static_cast<uint32_t>((value - kSlotBase) >> 32);
    CHECK(first < kNumSlots && t.slots[first].slots > 0) << "freeing what is no device allocation";
    uint32_t count = t.slots[first].slots;
    uint64_t bytes = (count - 1) * kSlotBytes + t.slots[first + count - 1].end - kSlotMargin;
    ::munmap(address, page_round(bytes));
    for (uint32_t i = 0; i < count; ++i) {
        t.slots[first + i].begin = 0;
        t.slots[first + i].end = 0;
    }
    t.slots[first].slots = 0;
}

}  // namespace cleave::runtime::simt
