// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/byte_level.h"

#include <array>

#include "runtime/text/utf8.h"

namespace cleave::runtime {

namespace {

constexpr char32_t kFirstStandIn = 0x100;
constexpr size_t kStandIns = 68;  // bytes that do not print

struct Alphabet {
    std::array<std::string, 256> text;
    std::array<unsigned char, kStandIns> stand_in_byte{};
};

bool prints(int byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

const Alphabet& alphabet() {
    static const Alphabet kTable = [] {
        Alphabet a;
        size_t next = 0;
        for (int byte = 0; byte < 256; ++byte) {
            char32_t code = static_cast<char32_t>(byte);
            if (!prints(byte)) {
                a.stand_in_byte[next] = static_cast<unsigned char>(byte);
                code = kFirstStandIn + static_cast<char32_t>(next++);
            }
            append_utf8(a.text[static_cast<size_t>(byte)], code);
        }
        return a;
    }();
    return kTable;
}

}  // namespace

const std::string& byte_level_char(unsigned char byte) { return alphabet().text[byte]; }

std::string to_byte_level(std::string_view text) {
    std::string out;
    out.reserve(text.size() + text.size() / 2);
    for (const char c : text) out += byte_level_char(static_cast<unsigned char>(c));
    return out;
}

std::optional<std::string> from_byte_level(std::string_view text) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
        const Utf8Char c = next_char(text, at);
        at += c.size;
        if (c.code < 256 && prints(static_cast<int>(c.code))) {
            out.push_back(static_cast<char>(c.code));
        } else if (c.code >= kFirstStandIn && c.code < kFirstStandIn + kStandIns) {
            out.push_back(static_cast<char>(alphabet().stand_in_byte[c.code - kFirstStandIn]));
        } else {
            return std::nullopt;
        }
    }
    return out;
}

}  // namespace cleave::runtime
