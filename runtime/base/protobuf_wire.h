// SPDX-License-Identifier: Apache-2.0
// Protobuf's wire format (https://protobuf.dev/programming-guides/encoding), without messages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cleave {

struct WireField {
    uint64_t number = 0;
    uint64_t type = 0;         // 0: a varint, 1: 8 bytes, 2: bytes behind their length, 5: 4 bytes
    std::string_view whole;    // with its key
    std::string_view content;  // without key and length
};

// Takes the first field off the front of `message`; nothing where no whole one is there. Groups
// are none.
std::optional<WireField> take_field(std::string_view& message);

void append_varint(std::string& out, uint64_t value);
// A field of type 2.
void append_bytes(std::string& out, uint64_t number, std::string_view content);

}  // namespace cleave
