// SPDX-License-Identifier: Apache-2.0
// Entry points of checked accesses, atomics and asynchronous copies.
#include <atomic>
#include <bit>
#include <cstring>

#include "runtime/simt/arena.h"
#include "runtime/simt/block.h"
#include "runtime/simt/entry_points.h"
#include "runtime/simt/memory.h"

namespace cleave::runtime::simt {

namespace {

const char* touch_name(Touch touch) {
    return touch == Touch::kLoad ? "read" : touch == Touch::kStore ? "write" : "atomic update";
}

// The last variable that begins at or before an offset.
const codegen::SimtSharedVariable* variable_at(const Block& block, uint32_t offset) {
    const codegen::SimtSharedVariable* found = nullptr;
    for (uint32_t i = 0; i < block.record->num_variables; ++i)
        if (block.record->variables[i].offset <= offset) found = &block.record->variables[i];
    return offset >= block.record->dynamic_offset ? nullptr : found;
}

[[noreturn]] __attribute__((noinline)) void fail_shared_bounds(Block& block, int64_t offset,
                                                               uint64_t bytes, Touch touch,
                                                               Here here, uint32_t begin,
                                                               uint32_t end) {
    const codegen::SimtSharedVariable* variable = variable_at(block, begin);
    block.fail(Fault::kSharedBounds, here,
               "%s of %llu bytes at byte %lld of %s, which has %u bytes", touch_name(touch),
               static_cast<unsigned long long>(bytes), static_cast<long long>(offset - begin),
               variable ? variable->name : "the dynamic shared memory", end - begin);
}

}  // namespace

__attribute__((noinline)) void fail_shadow(Block& block, const ShadowVerdict& verdict, Touch touch,
                                           Here here) {
    const codegen::SimtSharedVariable* variable = variable_at(block, verdict.offset);
    const char* name = variable ? variable->name : "the dynamic shared memory";
    unsigned byte = verdict.offset - (variable ? variable->offset : block.record->dynamic_offset);
    char other[48] = "several threads";
    if (verdict.other_thread >= 0)
        std::snprintf(other, sizeof other, "thread %d", verdict.other_thread);
    switch (verdict.kind) {
        case ShadowVerdict::kGap:
            block.fail(Fault::kSharedBounds, here, "%s past the end of %s", touch_name(touch),
                       name);
        case ShadowVerdict::kUninitialised:
            block.doubt(Fault::kUninitialised, here,
                        "read of byte %u of %s, which this block has not written", byte, name);
            break;
        case ShadowVerdict::kPendingCopy:
            block.fail(Fault::kAsyncCopy, here,
                       "%s of byte %u of %s, the target of a copy of %s that was not waited for",
                       touch_name(touch), byte, name, other);
        case ShadowVerdict::kUnfenced:
            block.fail(Fault::kAsyncProduct, here,
                       "a product reads byte %u of %s, written by %s without an async_fence since",
                       byte, name, other);
        case ShadowVerdict::kRaceWithWrite:
            block.fail(Fault::kRace, here,
                       "%s of byte %u of %s, written by %s with no barrier between",
                       touch_name(touch), byte, name, other);
        default:
            block.fail(Fault::kRace, here,
                       "%s of byte %u of %s, read by %s with no barrier between", touch_name(touch),
                       byte, name, other);
    }
}

namespace {

Toucher toucher(const Thread& thread) {
    return {thread.index, thread.warp->index, thread.warp->epoch};
}

inline void check_aligned(Block& block, uint64_t address, uint64_t size, Touch touch, Here here) {
    uint64_t align = size >> 32;
    if (align > 1 && (address & (align - 1))) [[unlikely]]
        block.fail(Fault::kMisaligned, here,
                   "%s of %u bytes at an address that is not a multiple of %u", touch_name(touch),
                   static_cast<unsigned>(size), static_cast<unsigned>(align));
}

// [begin, end): the variable, or the whole arena.
inline void check_shared(Block& block, int64_t offset, uint64_t bytes, Touch touch, Here here,
                         uint32_t begin, uint32_t end) {
    if (bytes == 0) return;
    if (offset < begin || offset + static_cast<int64_t>(bytes) > end) [[unlikely]]
        fail_shared_bounds(block, offset, bytes, touch, here, begin, end);
    ShadowVerdict verdict =
        block.shadow.touch(toucher(*block.current), static_cast<uint32_t>(offset),
                           static_cast<uint32_t>(bytes), touch);
    if (verdict.kind != ShadowVerdict::kFine) [[unlikely]]
        fail_shadow(block, verdict, touch, here);
}

[[noreturn]] __attribute__((noinline)) void fail_global(Block& block, const Slot& slot,
                                                        uint64_t address, uint64_t bytes,
                                                        Touch touch, Here here) {
    auto within = static_cast<long long>(address & (kSlotBytes - 1));
    if (slot.end == 0)
        block.fail(Fault::kGlobalBounds, here, "%s of %llu bytes in memory that is free",
                   touch_name(touch), static_cast<unsigned long long>(bytes));
    if (!block.reaches(slot.owner))
        block.fail(Fault::kGlobalBounds, here,
                   "%s of memory of another device, to which this one was given no peer access",
                   touch_name(touch));
    block.fail(Fault::kGlobalBounds, here,
               "%s of %llu bytes at byte %lld of an allocation of %llu bytes", touch_name(touch),
               static_cast<unsigned long long>(bytes), within - static_cast<long long>(kSlotMargin),
               static_cast<unsigned long long>(slot.end - kSlotMargin));
}

// Neither device memory nor shared memory: private memory seen through a pointer, or a constant
// table.
__attribute__((noinline)) void check_elsewhere(Block& block, uint64_t address, uint64_t bytes,
                                               Touch touch, Here here) {
    if (block.stacks.contains(address)) return;
    for (uint32_t i = 0; i < block.record->num_constants && touch == Touch::kLoad; ++i) {
        const codegen::SimtConstant& constant = block.record->constants[i];
        uint64_t offset = address - reinterpret_cast<uint64_t>(constant.address);
        if (offset < constant.bytes && offset + bytes <= constant.bytes) return;
    }
    block.fail(Fault::kWildAccess, here,
               "%s of %llu bytes at address %#llx, which belongs to nothing", touch_name(touch),
               static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(address));
}

// Device memory, touched while the launches before may still run.
__attribute__((noinline)) void check_early(Block& block, uint64_t address, uint64_t bytes,
                                           Touch touch, Here here) {
    if (!block.current->early || bytes == 0) return;
    for (const AddressRange& range : block.constants)
        if (touch == Touch::kLoad && address >= range.begin && address + bytes <= range.end) return;
    block.fail(Fault::kEarlyAccess, here,
               "%s of %llu bytes, which are no weights, before "
               "await_previous_launch()",
               touch_name(touch), static_cast<unsigned long long>(bytes));
}

inline void check_any(Block& block, const void* p, uint64_t size, Touch touch, Here here) {
    auto address = reinterpret_cast<uint64_t>(p);
    uint64_t bytes = static_cast<uint32_t>(size);
    check_aligned(block, address, size, touch, here);
    if (const Slot* slot = slot_of(address)) [[likely]] {
        uint64_t offset = address & (kSlotBytes - 1);
        if (offset < slot->begin.load(std::memory_order_relaxed) ||
            offset + bytes > slot->end.load(std::memory_order_relaxed) ||
            !block.reaches(slot->owner.load(std::memory_order_relaxed))) [[unlikely]]
            if (bytes > 0) fail_global(block, *slot, address, bytes, touch, here);
        if (block.early > 0) [[unlikely]]
            check_early(block, address, bytes, touch, here);
        if (touch != Touch::kAtomic && slot->exchange.load(std::memory_order_relaxed)) [[unlikely]]
            check_exchange(block, p, static_cast<uint32_t>(bytes), touch == Touch::kStore, false,
                           here);
        return;
    }
    uint64_t offset = address - reinterpret_cast<uint64_t>(block.shared);
    if (offset < kArenaBytes) {
        check_shared(block, static_cast<int64_t>(offset), bytes, touch, here, 0, block.shared_end);
    } else {
        check_elsewhere(block, address, bytes, touch, here);
    }
}

// Whether an access is certainly valid, as nearly every one is, without a call. The checks above
// decide about all others, from the beginning.
inline bool is_aligned(uint64_t address, uint64_t size) {
    return (address & ((size >> 32) - 1)) == 0;
}
inline bool is_fine_global(const Block& block, const Slot& slot, uint64_t address, uint64_t size) {
    const uint64_t offset = address & (kSlotBytes - 1), bytes = static_cast<uint32_t>(size);
    return offset >= slot.begin.load(std::memory_order_relaxed) &&
           offset + bytes <= slot.end.load(std::memory_order_relaxed) &&
           slot.owner.load(std::memory_order_relaxed) == block.owner &&
           !slot.exchange.load(std::memory_order_relaxed) && block.early == 0 &&
           is_aligned(address, size);
}
inline bool is_fine_shared_load(Block& block, uint64_t address, uint64_t size, uint32_t begin,
                                uint32_t end) {
    const uint64_t offset = address - reinterpret_cast<uint64_t>(block.shared),
                   bytes = static_cast<uint32_t>(size);
    if (offset >= kArenaBytes || offset < begin || offset + bytes > end || bytes == 0 ||
        !is_aligned(address, size))
        return false;
    const Toucher who = toucher(*block.current);
    const auto from = static_cast<uint32_t>(offset), length = static_cast<uint32_t>(bytes);
    return block.shadow.settled(who, from, length) || block.shadow.loads_own(who, from, length);
}
inline bool is_fine_load(Block& block, const void* p, uint64_t size) {
    const auto address = reinterpret_cast<uint64_t>(p);
    if (const Slot* slot = slot_of(address)) return is_fine_global(block, *slot, address, size);
    return is_fine_shared_load(block, address, size, 0, block.shared_end);
}

__attribute__((noinline)) void check_at(Block& block, const void* p, uint64_t size,
                                        const codegen::SimtSite* site, Touch touch) {
    check_any(block, p, size, touch, {site->file, static_cast<int>(site->line)});
}

__attribute__((noinline)) void check_variable(Block& block, const void* p, uint64_t size,
                                              const codegen::SimtSite* site, uint32_t offset,
                                              uint32_t length, Touch touch) {
    Here here{site->file, static_cast<int>(site->line)};
    check_aligned(block, reinterpret_cast<uint64_t>(p), size, touch, here);
    check_shared(block, static_cast<const char*>(p) - block.shared, static_cast<uint32_t>(size),
                 touch, here, offset, length ? offset + length : block.shared_end);
}

template <class T, class Change>
T update(T* p, Change change, const char* file, int line) {
    Block& block = current_block();
    if (block.checked) {
        check_any(block, p, sizeof(T) | uint64_t{alignof(T)} << 32, Touch::kAtomic, {file, line});
        check_exchange(block, p, sizeof(T), true, true, {file, line});
    }
    std::atomic_ref<T> value(*p);
    T old = value.load();
    while (!value.compare_exchange_weak(old, change(old))) {
    }
    return old;
}

template <class T>
T update_by(T* p, T v, int operation, const char* file, int line) {
    return update(
        p,
        [=](T old) {
            switch (operation) {
                case 0: return static_cast<T>(old + v);
                case 1: return old > v ? old : v;
                case 2: return old < v ? old : v;
                default: return v;
            }
        },
        file, line);
}

inline void perform(const PendingCopy& copy) {
    if (copy.valid == 16) {  // the most, and what most copies are
        std::memcpy(copy.shared, copy.global, 16);
        return;
    }
    std::memcpy(copy.shared, copy.global, copy.valid);
    std::memset(copy.shared + copy.valid, 0, copy.bytes - copy.valid);
}

}  // namespace

void check_access(Block& block, const void* p, uint64_t size, Touch touch, Here here) {
    check_any(block, p, size, touch, here);
}

extern "C" {

void cleave_simt_load(const void* p, uint64_t bytes, const codegen::SimtSite* site) {
    Block& block = current_block();
    if (is_fine_load(block, p, bytes)) [[likely]]
        return;
    check_at(block, p, bytes, site, Touch::kLoad);
}
void cleave_simt_store(const void* p, uint64_t bytes, const codegen::SimtSite* site) {
    Block& block = current_block();
    const auto address = reinterpret_cast<uint64_t>(p);
    if (const Slot* slot = slot_of(address); slot && is_fine_global(block, *slot, address, bytes))
        return;
    check_at(block, p, bytes, site, Touch::kStore);
}
void cleave_simt_shared_load(const void* p, uint64_t bytes, const codegen::SimtSite* site,
                             uint32_t offset, uint32_t length) {
    Block& block = current_block();
    if (is_fine_shared_load(block, reinterpret_cast<uint64_t>(p), bytes, offset,
                            length ? offset + length : block.shared_end)) [[likely]]
        return;
    check_variable(block, p, bytes, site, offset, length, Touch::kLoad);
}
void cleave_simt_shared_store(const void* p, uint64_t bytes, const codegen::SimtSite* site,
                              uint32_t offset, uint32_t length) {
    check_variable(current_block(), p, bytes, site, offset, length, Touch::kStore);
}
void cleave_simt_private(int64_t index, int64_t length, const codegen::SimtSite* site) {
    Block& block = current_block();
    block.fail(Fault::kPrivateBounds, {site->file, static_cast<int>(site->line)},
               "index %lld of a private array of %lld elements", static_cast<long long>(index),
               static_cast<long long>(length));
}

void cleave_simt_await_previous(const char* file, int line) {
    Block& block = current_block();
    block.wait_here = {file, line};
    if (!block.current->early) return;
    block.current->early = false;
    --block.early;
}

void cleave_simt_kv_block(int id, long long num_blocks, const char* file, int line) {
    if (id >= 0 && id < num_blocks) [[likely]]
        return;
    current_block().fail(Fault::kCacheBlock, {file, line},
                         "block %d of a KV pool of %lld blocks, named by the block table", id,
                         num_blocks);
}
void cleave_simt_kv_wrote(const void* p, long long bytes) {
    if (WrittenRows* rows = current_block().rows)
        rows->wrote(reinterpret_cast<uint64_t>(p), static_cast<uint64_t>(bytes));
}
void cleave_simt_kv_reads(const void* p, long long bytes, const char* file, int line) {
    Block& block = current_block();
    const auto wanted = static_cast<uint64_t>(bytes);
    if (!block.rows) return;
    const uint64_t written = block.rows->written_from(reinterpret_cast<uint64_t>(p), wanted);
    if (written == wanted) [[likely]]
        return;
    block.fail(Fault::kUnwrittenRow, {file, line},
               "byte %llu of a row of the KV cache of %lld bytes, which nobody has written",
               static_cast<unsigned long long>(written), bytes);
}

void cleave_simt_fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }

unsigned cleave_simt_atomic_u32(unsigned* p, unsigned v, int operation, const char* file,
                                int line) {
    return update_by(p, v, operation, file, line);
}
int cleave_simt_atomic_i32(int* p, int v, int operation, const char* file, int line) {
    return update_by(p, v, operation, file, line);
}
unsigned long long cleave_simt_atomic_u64(unsigned long long* p, unsigned long long v,
                                          const char* file, int line) {
    return update_by(p, v, 0, file, line);
}
float cleave_simt_atomic_f32(float* p, float v, const char* file, int line) {
    uint32_t old = update(
        reinterpret_cast<uint32_t*>(p),
        [=](uint32_t bits) { return std::bit_cast<uint32_t>(std::bit_cast<float>(bits) + v); },
        file, line);
    return std::bit_cast<float>(old);
}
unsigned cleave_simt_atomic_cas(unsigned* p, unsigned expected, unsigned v, const char* file,
                                int line) {
    return update(p, [=](unsigned old) { return old == expected ? v : old; }, file, line);
}

// Unchecked kernels copy at once. Checked ones keep the copy back until its thread waits, as the
// hardware may.
void cleave_simt_async_copy(void* shared, const void* global, int bytes, int valid,
                            const char* file, int line) {
    Block& block = current_block();
    Thread& self = *block.current;
    Here here{file, line};
    const PendingCopy copy{static_cast<char*>(shared), static_cast<const char*>(global),
                           self.copy_group, static_cast<uint16_t>(bytes),
                           static_cast<uint16_t>(valid ? bytes : 0)};
    if (!block.checked) {
        perform(copy);
        return;
    }
    uint64_t size = copy.bytes | uint64_t{copy.bytes} << 32;
    uint64_t offset = static_cast<uint64_t>(copy.shared - block.shared);
    if (offset >= kArenaBytes)
        block.fail(Fault::kAsyncCopy, here,
                   "the target of an asynchronous copy is not in shared memory");
    if (copy.valid > 0) {
        if (!is_fine_load(block, global, size)) check_any(block, global, size, Touch::kLoad, here);
        __builtin_prefetch(global);
    }
    const Toucher who = toucher(self);
    if (offset % copy.bytes != 0 || offset + copy.bytes > block.shared_end ||
        !block.shadow.copies_to_own(who, static_cast<uint32_t>(offset), copy.bytes)) {
        check_any(block, shared, size, Touch::kStore, here);
        block.shadow.mark_pending(who, static_cast<uint32_t>(offset), copy.bytes);
    }
    self.copies.push_back(copy);
}

void cleave_simt_async_commit() { ++current_block().current->copy_group; }

void cleave_simt_async_wait(int pending, const char*, int) {
    Block& block = current_block();
    Thread& self = *block.current;
    while (!self.copies.empty() &&
           self.copy_group - self.copies.front().group > static_cast<uint32_t>(pending)) {
        const PendingCopy copy = self.copies.front();
        self.copies.pop_front();
        perform(copy);
        block.shadow.mark_arrived(toucher(self), static_cast<uint32_t>(copy.shared - block.shared),
                                  copy.bytes);
    }
}

}  // extern "C"

}  // namespace cleave::runtime::simt
