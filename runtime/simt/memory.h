// SPDX-License-Identifier: Apache-2.0
// Device memory of simt devices: each allocation begins in an aligned 4 GiB slot of address space
// of its own, so that an address identifies its allocation and exact bounds need no shadow memory.
// The table of slots is the process's, as the address space is. Freed slots are reused last, which
// makes use after free visible. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

namespace cleave::runtime::simt {

#ifdef __SANITIZE_THREAD__
// The low of the three ranges that the sanitizer leaves to programs on x86-64.
inline constexpr uint64_t kSlotBase = 0x100000000;
inline constexpr uint32_t kNumSlots = 126;
#else
// Above what Linux maps by itself on x86-64, below stacks.
inline constexpr uint64_t kSlotBase = 0x100000000000;
inline constexpr uint32_t kNumSlots = 4096;
#endif
inline constexpr uint64_t kSlotBytes = uint64_t{1} << 32;
inline constexpr uint64_t kSlotMargin = 65536;  // before an allocation: negative indices fall here

class ExchangeMemory;

struct Slot {
    std::atomic<uint64_t> begin{0},
        end{0};  // bytes from the slot's start; begin == end: nothing here
    std::atomic<uint32_t> owner{0};
    std::atomic<ExchangeMemory*> exchange{nullptr};  // who keeps the order of accesses
    uint32_t slots = 0;                              // of the allocation that begins here
};

extern Slot slot_table[kNumSlots];

// The slot of an address, or null.
inline const Slot* slot_of(uint64_t address) {
    uint64_t index = (address - kSlotBase) >> 32;
    return index < kNumSlots ? &slot_table[index] : nullptr;
}

struct AddressRange {
    uint64_t begin = 0, end = 0;
};
// The allocation that holds an address; nothing where none does.
AddressRange allocation_of(uint64_t address);

// Null when there is no memory or no slot left. `bytes` > 0.
void* allocate_slots(uint64_t bytes, uint32_t owner);
void free_slots(void* address);
// From now on `exchange` is asked at every checked access; null: nobody is.
void watch_slots(void* address, ExchangeMemory* exchange);

}  // namespace cleave::runtime::simt
