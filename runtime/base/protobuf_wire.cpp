// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/protobuf_wire.h"

namespace cleave {

namespace {

std::optional<uint64_t> take_varint(std::string_view& bytes) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
        const auto byte = static_cast<unsigned char>(bytes.front());
        bytes.remove_prefix(1);
        value |= uint64_t{byte & 127U} << shift;
        if (byte < 128) return value;
    }
    return std::nullopt;
}

}  // namespace

std::optional<WireField> take_field(std::string_view& message) {
    std::string_view rest = message;
    const std::optional<uint64_t> key = take_varint(rest);
    if (!key || *key >> 3 == 0) return std::nullopt;
    WireField field{.number = *key >> 3, .type = *key & 7};
    std::optional<uint64_t> size;
    const std::string_view content = rest;
    switch (field.type) {
        case 0:
            if (take_varint(rest)) size = content.size() - rest.size();
            rest = content;
            break;
        case 1: size = 8; break;
        case 2: size = take_varint(rest); break;
        case 5: size = 4; break;
        default: break;
    }
    if (!size || *size > rest.size()) return std::nullopt;
    field.content = rest.substr(0, *size);
    rest.remove_prefix(*size);
    field.whole = message.substr(0, message.size() - rest.size());
    message = rest;
    return field;
}

void append_varint(std::string& out, uint64_t value) {
    for (; value >= 128; value >>= 7) out.push_back(static_cast<char>((value & 127) | 128));
    out.push_back(static_cast<char>(value));
}

void append_bytes(std::string& out, uint64_t number, std::string_view content) {
    append_varint(out, number << 3 | 2);
    append_varint(out, content.size());
    out.append(content);
}

}  // namespace cleave
