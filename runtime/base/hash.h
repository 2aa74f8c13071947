// SPDX-License-Identifier: Apache-2.0
// A stable 128-bit digest for cache keys and plan digests: the same bytes give the same text on
// every machine and in every version. FNV-1a over two seeds; not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace cleave {

class Digest {
public:
    Digest& add(std::span<const std::byte> bytes);
    Digest& add(std::string_view text);  // length first, so that ("ab","c") differs from ("a","bc")
    Digest& add(int64_t number);
    std::string hex() const;  // 32 lower-case hexadecimal digits

private:
    uint64_t low_ = 0xcbf29ce484222325u;
    uint64_t high_ = 0x6c62272e07bb0142u;
};

}  // namespace cleave
