// SPDX-License-Identifier: Apache-2.0
// The race detector of shared memory: a cell for every `cell_bytes` remembers the last writer and
// the readers since, each with the barrier interval and the warp_sync interval it fell in. Two
// accesses are ordered when a barrier is between, or both are of one warp and a warp_sync is
// between, or both are of one thread; otherwise, if one writes and not both are atomic, they race.
// Writes of an earlier block count as none: reading them is reading uninitialised memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cleave::runtime::simt {

enum class Touch : uint8_t { kLoad, kStore, kAtomic };

// Who, when and where of an access.
struct Toucher {
    uint32_t thread = 0;
    uint32_t warp = 0;
    uint64_t warp_epoch = 0;
};

struct ShadowVerdict {
    enum Kind : uint8_t {
        kFine,
        kGap,
        kUninitialised,
        kPendingCopy,
        kRaceWithWrite,
        kRaceWithRead,
        kUnfenced
    } kind = kFine;
    int other_thread = -1;  // when one is known
    uint32_t offset = 0;
};

class Shadow {
public:
    // Everything in [0, bytes) is a gap until `allow`ed. Starts interval 1.
    void reset(uint32_t bytes, uint32_t cell_bytes, uint32_t warp_width);
    void allow(uint32_t offset, uint32_t bytes);
    void next_interval() { ++interval_; }
    void begin_block() { first_interval_ = ++interval_; }

    // Whether a load is certainly fine and changes nothing: written before the last barrier, and
    // since then already read by several warps, or by several threads of this one since its last
    // warp_sync. What most loads of most kernels are.
    bool settled(const Toucher& who, uint32_t offset, uint32_t bytes) const {
        const uint64_t own_warp = one_warp(who);
        const Span span = cells_that_differ(offset, bytes);
        for (uint64_t i = span.first; i <= span.last; ++i) {
            const Cell& cell = cells_[i];
            uint64_t written = cell.writer >> 32;
            if (written >= interval_ || written < first_interval_ ||
                several(cell.writer) == kPending)
                return false;
            if (cell.reader != own_warp &&
                (cell.reader >> 32 != interval_ || several(cell.reader) != kManyWarps))
                return false;
        }
        return true;
    }

    // Whether a load is of what the thread itself wrote since the last barrier and nobody else has
    // read since; it counts then. Rings of asynchronous copies that are private to their threads.
    bool loads_own(const Toucher& who, uint32_t offset, uint32_t bytes) {
        const uint64_t now = mark(who);
        const Span span = cells_that_differ(offset, bytes);
        for (uint64_t i = span.first; i <= span.last; ++i)
            if (cells_[i].writer != now || is_of_another(cells_[i].reader, now)) return false;
        for (uint64_t i = span.first; i <= span.end; ++i) cells_[i].reader = now;
        return true;
    }
    // Whether an asynchronous copy goes where nobody but its thread has been since the last
    // barrier; it is pending then.
    bool copies_to_own(const Toucher& who, uint32_t offset, uint32_t bytes) {
        const uint64_t now = mark(who), then = pending(who);
        const Span span = cells_that_differ(offset, bytes);
        for (uint64_t i = span.first; i <= span.last; ++i) {
            const Cell& cell = cells_[i];
            if (cell.writer == kGapMark || is_of_another(cell.writer, now) ||
                is_of_another(cell.reader, now) || several(cell.writer) == kPending)
                return false;
        }
        for (uint64_t i = span.first; i <= span.end; ++i) cells_[i].writer = then;
        return true;
    }

    // After kUninitialised the access counts all the same: a write before the next barrier makes a
    // race of it.
    ShadowVerdict touch(const Toucher& who, uint32_t offset, uint32_t bytes, Touch touch);
    // The target of an asynchronous copy: no one may touch it until it has arrived, which is a
    // store then.
    void mark_pending(const Toucher& who, uint32_t offset, uint32_t bytes);
    void mark_arrived(const Toucher& who, uint32_t offset, uint32_t bytes) {
        const uint64_t now = mark(who), last = (offset + bytes - 1) >> cell_shift_;
        for (uint64_t i = offset >> cell_shift_; i <= last; ++i) cells_[i].writer = now;
        if (cell_fences_.empty()) return;
        for (uint64_t i = offset >> cell_shift_; i <= last; ++i) note_fences(i, who.thread);
    }

    // Products of warpgroups read through the asynchronous proxy: what a thread wrote is there
    // after a fence of its own and a barrier. From here on writes remember the fences of their
    // threads.
    void watch_fences();
    void async_fence(uint32_t thread) { ++thread_fences_[thread]; }
    // A product begins to read, for every thread of the block as far as later writes are concerned.
    ShadowVerdict product_reads(uint32_t offset, uint32_t bytes);
    // The same product has ended, which began in `interval`: nobody wrote meanwhile.
    ShadowVerdict product_has_read(uint32_t offset, uint32_t bytes, uint64_t interval) const;
    uint64_t interval() const { return interval_; }

private:
    // interval : 32 | warp epoch : 19 | atomic : 1 | several : 2 | thread, or warp : 10
    struct Cell {
        uint64_t writer = 0, reader = 0;
    };
    enum Several : uint32_t { kOneThread = 0, kOneWarp = 1, kManyWarps = 2, kPending = 3 };
    static constexpr uint64_t kGapMark = ~uint64_t{0};
    static constexpr uint64_t kAtomicBit = 1 << 12;

    // The cells of an access, and the last of them that need be looked at: four equal cells of a
    // piece count as one.
    struct Span {
        uint64_t first, last, end;
    };
    Span cells_that_differ(uint32_t offset, uint32_t bytes) const {
        const uint64_t first = offset >> cell_shift_, end = (offset + bytes - 1) >> cell_shift_;
        if (end - first != 3) return {first, end, end};
        const Cell* c = &cells_[first];
        const uint64_t differ = (c[0].writer ^ c[1].writer) | (c[0].reader ^ c[1].reader) |
                                (c[0].writer ^ c[2].writer) | (c[0].reader ^ c[2].reader) |
                                (c[0].writer ^ c[3].writer) | (c[0].reader ^ c[3].reader);
        return {first, differ ? end : first, end};
    }

    static uint32_t several(uint64_t mark) { return mark >> 10 & 3; }
    uint32_t warp_of(uint64_t mark) const {
        auto who = static_cast<uint32_t>(mark & 1023);
        return several(mark) == kOneWarp ? who : who >> warp_shift_;
    }
    uint64_t mark(const Toucher& who) const {
        return interval_ << 32 | (who.warp_epoch & 0x7ffff) << 13 | who.thread;
    }
    uint64_t one_warp(const Toucher& who) const {
        return (mark(who) & ~uint64_t{0xfff}) | uint64_t{kOneWarp} << 10 | who.warp;
    }
    uint64_t pending(const Toucher& who) const {
        return (mark(who) & ~uint64_t{0xfff}) | uint64_t{kPending} << 10 | who.thread;
    }
    // Of the same interval, and not `now`'s own.
    bool is_of_another(uint64_t before, uint64_t now) const {
        return before != now && before >> 32 == interval_;
    }
    bool unordered(uint64_t before, const Toucher& who, uint64_t now) const;
    void add_reader(Cell& cell, const Toucher& who, uint64_t now) const;
    void add_writer(Cell& cell, const Toucher& who, uint64_t now, bool atomic) const;
    void note_fences(size_t cell, uint32_t thread) {
        if (!cell_fences_.empty()) cell_fences_[cell] = thread_fences_[thread];
    }
    void set_writer(uint64_t writer, uint32_t offset, uint32_t bytes);
    ShadowVerdict verdict(ShadowVerdict::Kind kind, uint64_t mark, size_t cell) const;

    std::vector<Cell> cells_;
    std::vector<uint32_t> cell_fences_, thread_fences_;  // empty: not watched
    uint32_t cell_shift_ = 2, warp_shift_ = 5;
    uint64_t interval_ = 1, first_interval_ = 1;
};

}  // namespace cleave::runtime::simt
