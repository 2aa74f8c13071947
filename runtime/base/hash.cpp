// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/hash.h"

#include <fmt/format.h>

namespace cleave {
namespace {

constexpr uint64_t kPrime = 0x100000001b3u;

}  // namespace

Digest& Digest::add(std::span<const std::byte> bytes) {
    for (std::byte b : bytes) {
        low_ = (low_ ^ static_cast<uint64_t>(b)) * kPrime;
        high_ = (high_ ^ (static_cast<uint64_t>(b) + 0x9eu) ^ (low_ >> 47)) * kPrime;
    }
    return *this;
}

Digest& Digest::add(std::string_view text) {
    add(static_cast<int64_t>(text.size()));
    return add(std::as_bytes(std::span(text.data(), text.size())));
}

Digest& Digest::add(int64_t number) {
    std::byte bytes[8];
    for (int i = 0; i < 8; ++i)
        bytes[i] = static_cast<std::byte>(static_cast<uint64_t>(number) >> (8 * i));
    return add(std::span<const std::byte>(bytes));
}

std::string Digest::hex() const { return fmt::format("{:016x}{:016x}", high_, low_); }

}  // namespace cleave
