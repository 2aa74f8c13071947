// SPDX-License-Identifier: Apache-2.0
#include "runtime/simt/shadow.h"

#include <bit>

namespace cleave::runtime::simt {

void Shadow::reset(uint32_t bytes, uint32_t cell_bytes, uint32_t warp_width) {
    cell_shift_ = static_cast<uint32_t>(std::countr_zero(cell_bytes));
    warp_shift_ = static_cast<uint32_t>(std::countr_zero(warp_width));
    cells_.assign((bytes >> cell_shift_) + 1, Cell{kGapMark, 0});
    interval_ = first_interval_ = 1;
    cell_fences_.clear();
    thread_fences_.clear();
}

void Shadow::watch_fences() {
    cell_fences_.assign(cells_.size(), 0);
    thread_fences_.assign(1024, 0);  // threads of a block, at most
}

void Shadow::allow(uint32_t offset, uint32_t bytes) {
    if (bytes == 0) return;
    for (size_t i = offset >> cell_shift_; i <= (offset + bytes - 1) >> cell_shift_; ++i)
        cells_[i] = Cell{};
}

bool Shadow::unordered(uint64_t before, const Toucher& who, uint64_t now) const {
    if (before >> 32 != interval_) return false;  // a barrier is between
    uint32_t many = several(before);
    if (many == kOneThread && (before & 1023) == who.thread) return false;
    if (many == kManyWarps || warp_of(before) != who.warp) return true;
    return (before >> 13 & 0x7ffff) == (now >> 13 & 0x7ffff);
}

// Keeps what a later writer could conflict with: of one warp, only the readers since its last
// warp_sync.
void Shadow::add_reader(Cell& cell, const Toucher& who, uint64_t now) const {
    uint64_t before = cell.reader;
    if (before >> 32 != interval_) {
        cell.reader = now;
        return;
    }
    uint32_t many = several(before);
    if (many == kManyWarps) return;
    if (warp_of(before) != who.warp) {
        cell.reader = (now & ~uint64_t{0xfff}) | uint64_t{kManyWarps} << 10;
        return;
    }
    bool same_epoch = (before >> 13 & 0x7ffff) == (now >> 13 & 0x7ffff);
    bool same_thread = many == kOneThread && (before & 1023) == who.thread;
    cell.reader = !same_epoch || same_thread ? now : one_warp(who);
}

// Only atomic writes ever have company: a plain one has been found to be ordered.
void Shadow::add_writer(Cell& cell, const Toucher& who, uint64_t now, bool atomic) const {
    if (!atomic) {
        cell.writer = now;
        return;
    }
    uint64_t before = cell.writer;
    bool company =
        before >> 32 == interval_ && (before & kAtomicBit) && unordered(before, who, now);
    uint64_t mark = now | kAtomicBit;
    if (company) {
        bool one_warp = several(before) != kManyWarps && warp_of(before) == who.warp;
        mark = (mark & ~uint64_t{0xfff}) | kAtomicBit |
               (one_warp ? uint64_t{kOneWarp} << 10 | who.warp : uint64_t{kManyWarps} << 10);
    }
    cell.writer = mark;
}

ShadowVerdict Shadow::verdict(ShadowVerdict::Kind kind, uint64_t mark, size_t cell) const {
    int other = several(mark) == kOneThread ? static_cast<int>(mark & 1023) : -1;
    return {kind, other, static_cast<uint32_t>(cell << cell_shift_)};
}

ShadowVerdict Shadow::touch(const Toucher& who, uint32_t offset, uint32_t bytes, Touch touch) {
    uint64_t now = mark(who);
    size_t last = (offset + bytes - 1) >> cell_shift_;
    ShadowVerdict doubt;
    for (size_t i = offset >> cell_shift_; i <= last; ++i) {
        Cell& cell = cells_[i];
        if (cell.writer == kGapMark) return verdict(ShadowVerdict::kGap, 0, i);
        bool both_atomic = touch == Touch::kAtomic && (cell.writer & kAtomicBit);
        if (several(cell.writer) == kPending && cell.writer >> 32 >= first_interval_) {
            return verdict(ShadowVerdict::kPendingCopy, cell.writer, i);
        } else if (cell.writer != now && !both_atomic && unordered(cell.writer, who, now)) {
            return verdict(ShadowVerdict::kRaceWithWrite, cell.writer, i);
        }
        if (touch != Touch::kStore && cell.writer >> 32 < first_interval_ &&
            doubt.kind == ShadowVerdict::kFine)
            doubt = verdict(ShadowVerdict::kUninitialised, 0, i);
        if (touch == Touch::kLoad) {
            if (cell.reader != now) add_reader(cell, who, now);
            continue;
        }
        if (cell.reader != now && unordered(cell.reader, who, now))
            return verdict(ShadowVerdict::kRaceWithRead, cell.reader, i);
        add_writer(cell, who, now, touch == Touch::kAtomic);
        note_fences(i, who.thread);
    }
    return doubt;
}

ShadowVerdict Shadow::product_reads(uint32_t offset, uint32_t bytes) {
    ShadowVerdict doubt;
    for (size_t i = offset >> cell_shift_; i <= (offset + bytes - 1) >> cell_shift_; ++i) {
        Cell& cell = cells_[i];
        if (cell.writer == kGapMark) return verdict(ShadowVerdict::kGap, 0, i);
        if (cell.writer >> 32 < first_interval_) {
            if (doubt.kind == ShadowVerdict::kFine)
                doubt = verdict(ShadowVerdict::kUninitialised, 0, i);
        } else if (several(cell.writer) == kPending) {
            return verdict(ShadowVerdict::kPendingCopy, cell.writer, i);
        } else if (cell.writer >> 32 == interval_) {
            return verdict(ShadowVerdict::kRaceWithWrite, cell.writer, i);
        } else if (several(cell.writer) == kOneThread &&
                   cell_fences_[i] == thread_fences_[cell.writer & 1023]) {
            return verdict(ShadowVerdict::kUnfenced, cell.writer, i);
        }
        cell.reader = interval_ << 32 | uint64_t{kManyWarps} << 10;
    }
    return doubt;
}

ShadowVerdict Shadow::product_has_read(uint32_t offset, uint32_t bytes, uint64_t interval) const {
    for (size_t i = offset >> cell_shift_; i <= (offset + bytes - 1) >> cell_shift_; ++i)
        if (cells_[i].writer >> 32 >= interval)
            return verdict(ShadowVerdict::kRaceWithWrite, cells_[i].writer, i);
    return {};
}

void Shadow::set_writer(uint64_t writer, uint32_t offset, uint32_t bytes) {
    for (size_t i = offset >> cell_shift_; i <= (offset + bytes - 1) >> cell_shift_; ++i)
        cells_[i].writer = writer;
}

void Shadow::mark_pending(const Toucher& who, uint32_t offset, uint32_t bytes) {
    set_writer(pending(who), offset, bytes);
}

}  // namespace cleave::runtime::simt
