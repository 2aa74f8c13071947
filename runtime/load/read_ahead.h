// SPDX-License-Identifier: Apache-2.0
// What is read of files in a known order, asked for some way ahead: a disk is busy while a chunk is
// converted, and a matrix whose every page a chunk needs does not come page by page. One thread at
// a time.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "runtime/base/mapped_file.h"

namespace cleave::runtime {

class ReadAhead {
public:
    using Span = std::span<const std::byte>;

    // `spans` in the order in which they are read; `ask` is called with pieces of them, each once,
    // in that order.
    explicit ReadAhead(std::vector<Span> spans, std::function<void(Span)> ask = will_need);

    // The first `bytes` of span `i` are about to be read: all that lies before their end, and
    // kAhead bytes behind it, has been asked for when this returns. Spans before `i` that were not
    // need not be.
    void about_to_read(size_t i, size_t bytes);

    static constexpr size_t kPiece = size_t{8} << 20, kAhead = size_t{64} << 20;

private:
    std::vector<Span> spans_;
    std::function<void(Span)> ask_;
    std::vector<size_t>
        starts_;        // as if the spans lay one behind the other; behind the last, where it ends
    size_t asked_ = 0;  // likewise: up to here
    size_t next_ = 0;   // the span that it lies in
};

}  // namespace cleave::runtime
