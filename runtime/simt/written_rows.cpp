// SPDX-License-Identifier: Apache-2.0
#include "runtime/simt/written_rows.h"

#include <algorithm>
#include <iterator>

namespace cleave::runtime::simt {

void WrittenRows::wrote(uint64_t address, uint64_t bytes) {
    if (bytes == 0) return;
    uint64_t begin = address, end = address + bytes;
    std::lock_guard lock(mutex_);
    auto next = runs_.upper_bound(begin);
    if (next != runs_.begin()) {
        const auto before = std::prev(next);
        if (before->second >= end) return;
        if (before->second >= begin) {
            begin = before->first;
            next = runs_.erase(before);
        }
    }
    while (next != runs_.end() && next->first <= end) {
        end = std::max(end, next->second);
        next = runs_.erase(next);
    }
    runs_.emplace_hint(next, begin, end);
}

void WrittenRows::forget(uint64_t address, uint64_t bytes) {
    if (bytes == 0) return;
    const uint64_t end = address + bytes;
    std::lock_guard lock(mutex_);
    auto next = runs_.upper_bound(address);
    if (next != runs_.begin()) --next;
    while (next != runs_.end() && next->first < end) {
        const auto [from, to] = *next;
        if (to <= address) {
            ++next;
            continue;
        }
        next = runs_.erase(next);
        if (from < address) runs_.emplace(from, address);
        if (to > end) runs_.emplace(end, to);
    }
}

uint64_t WrittenRows::written_from(uint64_t address, uint64_t bytes) const {
    std::lock_guard lock(mutex_);
    const auto next = runs_.upper_bound(address);
    if (next == runs_.begin()) return 0;
    const uint64_t end = std::prev(next)->second;
    return end <= address ? 0 : std::min(bytes, end - address);
}

}  // namespace cleave::runtime::simt
