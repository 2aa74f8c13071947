// SPDX-License-Identifier: Apache-2.0
// How much a rendering may do, so that a template from somewhere else ends and keeps memory within
// a bound: nodes that are evaluated, values that are made, copied, compared or printed, bytes that
// are made or read. Whatever grows with a value spends here before it is done.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cleave::runtime::jinja {

// The budget of this thread's rendering while it exists. Renderings are not nested.
class Budget {
public:
    // About two seconds of one core. The templates of published models spend less than a
    // thousandth of it.
    static constexpr int64_t kMostWork = 100'000'000;
    // What evaluating a node costs beside what it does.
    static constexpr size_t kNode = 16;

    Budget();
    ~Budget();
    Budget(const Budget&) = delete;
    Budget& operator=(const Budget&) = delete;
};

// Bytes of text that are made, copied or compared are one such piece of work; where it is read
// character by character, so many; an item of a list is so many pieces.
inline constexpr size_t kBytesOfWork = 8, kBytesOfReading = 4, kItem = 4;

// TemplateError when the rendering's budget is used up; nothing without a Budget.
void spend(size_t work);

}  // namespace cleave::runtime::jinja
