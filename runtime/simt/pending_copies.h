// SPDX-License-Identifier: Apache-2.0
// Asynchronous copies of one thread that have not arrived, oldest first: a circular buffer, so that
// a kernel's ring of copies goes round in a few hundred bytes of the first-level cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace cleave::runtime::simt {

struct PendingCopy {
    char* shared;
    const char* global;
    uint32_t group;  // of its thread's commits
    uint16_t bytes, valid;
};

class PendingCopies {
public:
    bool empty() const { return begin_ == end_; }
    void clear() { begin_ = end_ = 0; }
    const PendingCopy& front() const { return copies_[begin_ & (capacity_ - 1)]; }  // not of none
    void pop_front() { ++begin_; }
    void push_back(const PendingCopy& copy) {
        if (end_ - begin_ == capacity_) [[unlikely]]
            grow();
        copies_[end_++ & (capacity_ - 1)] = copy;
    }

private:
    __attribute__((noinline)) void grow() {
        const uint32_t capacity = capacity_ == 0 ? 16 : 2 * capacity_, count = end_ - begin_;
        auto copies = std::make_unique<PendingCopy[]>(capacity);
        for (uint32_t i = 0; i < count; ++i) copies[i] = copies_[(begin_ + i) & (capacity_ - 1)];
        copies_ = std::move(copies);
        capacity_ = capacity;
        begin_ = 0;
        end_ = count;
    }

    std::unique_ptr<PendingCopy[]> copies_;
    uint32_t capacity_ = 0, begin_ = 0, end_ = 0;  // the last two count on and wrap
};

}  // namespace cleave::runtime::simt
