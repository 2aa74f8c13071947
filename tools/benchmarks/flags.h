// SPDX-License-Identifier: Apache-2.0
// Numbers on the command lines of the benchmarks and of gpu-check, which hands them on.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>

#include "runtime/base/errors.h"

namespace cleave::bench {

constexpr int64_t kMostCopyMib = 16'000, kMostTokens = 100'000;

// UserError with the flag and what it takes.
inline int64_t whole_number(const std::string& flag, const std::string& text, int64_t least,
                            int64_t most) {
    int64_t number = 0;
    const char* end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, number);
    if (read.ec != std::errc() || read.ptr != end || number < least || number > most)
        throw UserError("{} {}: takes a whole number from {} to {}", flag, text, least, most);
    return number;
}

}  // namespace cleave::bench
