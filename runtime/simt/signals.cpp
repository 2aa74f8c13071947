// SPDX-License-Identifier: Apache-2.0
// Entry points by which kernels of different devices wait for each other, and the check of what
// they exchange. The waiting thread gives way to those of its own block first; when none can go on,
// its OS thread sleeps until somebody stores to a word that is waited for: devices beyond the
// number of cores cost nothing while they wait.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/simt/block.h"
#include "runtime/simt/entry_points.h"

namespace cleave::runtime::simt {

namespace {

// A wait looks again at least this often: a word of the host's may have changed.
constexpr timespec kTick{0, 10'000'000}, kShortTick{0, 50'000};

std::atomic<uint32_t> sleepers{0};  // of the process; stores wake only when there are any

// How long this OS thread has slept for others. A process that was stopped for a while has not
// waited meanwhile: those it waits for were stopped, too.
thread_local uint64_t waited = 0;

// Pauses in a row in which the block's other threads had their turn: they may all be waiting.
thread_local uint32_t turns = 0;

constexpr uint64_t kWord = 4 | uint64_t{4} << 32;

// Who keeps the order of accesses to the word, for a block that is part of it.
ExchangeMemory* memory_of(const Block& block, const unsigned* p) {
    const Slot* slot = block.order.keeps() ? slot_of(reinterpret_cast<uint64_t>(p)) : nullptr;
    return slot ? slot->exchange.load(std::memory_order_acquire) : nullptr;
}

}  // namespace

Stamp stamp_of(const Block& block) {
    const Thread& self = *block.current;
    Stamp now;
    now.interval = static_cast<uint32_t>(block.shadow.interval());
    now.warp = self.warp->index;
    now.epoch = static_cast<uint32_t>(self.warp->epoch);
    now.thread = self.index;
    return now;
}

void check_exchange(Block& block, const void* p, uint32_t bytes, bool writes, bool atomic,
                    Here here) {
    const auto address = reinterpret_cast<uint64_t>(p);
    const Slot* slot = slot_of(address);
    ExchangeMemory* memory = slot ? slot->exchange.load(std::memory_order_acquire) : nullptr;
    if (!memory || bytes == 0 || !block.order.keeps()) return;
    const ExchangeMemory::Found found =
        block.order.touch(*memory, stamp_of(block), address, bytes, writes, atomic);
    using Verdict = ExchangeMemory::Verdict;
    if (found.verdict == Verdict::kFine) return;
    char device[64];  // a fiber that is left destroys nothing
    std::snprintf(device, sizeof device, "%s", DeviceOrder::name_of(found.other.device).c_str());
    const auto byte = static_cast<unsigned long long>(found.offset);
    const unsigned thread = found.other.thread, of_block = found.other.block;
    if (found.verdict == Verdict::kRaceWithWrite || found.verdict == Verdict::kRaceWithRead)
        block.fail(Fault::kRace, here,
                   "%s of byte %llu of memory for exchanges, %s by thread %u of block %u of %s "
                   "with no barrier, release and acquire between",
                   writes ? "write" : "read", byte,
                   found.verdict == Verdict::kRaceWithWrite ? "written" : "read", thread, of_block,
                   device);
    if (found.verdict == Verdict::kUnflushed)
        block.fail(Fault::kStaleRead, here,
                   "read of byte %llu of memory for exchanges, written by thread %u of block %u of "
                   "%s, which had not called flush_to_peers() before the release",
                   byte, thread, of_block, device);
    block.fail(Fault::kStaleRead, here,
               "read of byte %llu of memory for exchanges, written by thread %u of block %u of %s, "
               "without see_peers() behind the barrier after the acquire",
               byte, thread, of_block, device);
}

extern "C" {

unsigned cleave_simt_load_acquire(const unsigned* p, const char* file, int line) {
    Block& block = current_block();
    if (block.checked) {
        check_access(block, p, kWord, Touch::kAtomic, {file, line});
        check_exchange(block, p, 4, false, true, {file, line});
        if (ExchangeMemory* memory = memory_of(block, p))
            return block.order.acquire(*memory, block.current->index, p);
    }
    return std::atomic_ref<unsigned>(const_cast<unsigned&>(*p)).load(std::memory_order_acquire);
}

void cleave_simt_store_release(unsigned* p, unsigned v, const char* file, int line) {
    Block& block = current_block();
    ExchangeMemory* memory = nullptr;
    if (block.checked) {
        check_access(block, p, kWord, Touch::kAtomic, {file, line});
        check_exchange(block, p, 4, true, true, {file, line});
        memory = memory_of(block, p);
    }
    // The store and the look at the sleepers have the same order as a sleeper's count and futex's
    // own look.
    if (memory) {
        block.order.release(*memory, stamp_of(block), p, v);
    } else {
        std::atomic_ref<unsigned>(*p).store(v, std::memory_order_seq_cst);
    }
    if (sleepers.load() > 0)
        syscall(SYS_futex, p, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

void cleave_simt_flush_to_peers() {
    Block& block = current_block();
    block.order.flush(block.current->index);
}

void cleave_simt_see_peers() {
    Block& block = current_block();
    block.order.see(block.current->index);
}

void cleave_simt_pause(const unsigned* p, unsigned seen) {
    Block& block = current_block();
    const uint32_t others = block.tail - block.head;
    if (others > 0 && turns++ <= others) {
        Thread* self = block.current;
        block.make_ready(self->index);
        block.yield(self);
        return;
    }
    turns = 0;
    const auto begin = std::chrono::steady_clock::now();
    sleepers.fetch_add(1);
    // With others that wait for words of their own, soon again.
    syscall(SYS_futex, p, FUTEX_WAIT_PRIVATE, seen, others > 0 ? &kShortTick : &kTick, nullptr, 0);
    sleepers.fetch_sub(1);
    waited += std::min<uint64_t>(2 * kTick.tv_nsec,
                                 static_cast<uint64_t>((std::chrono::steady_clock::now() - begin) /
                                                       std::chrono::nanoseconds(1)));
}

unsigned long long cleave_simt_nanoseconds() { return waited; }

}  // extern "C"

}  // namespace cleave::runtime::simt
