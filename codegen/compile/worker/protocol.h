// SPDX-License-Identifier: Apache-2.0
// What the compile worker and its client say to each other, over pipes: messages of byte strings. A
// message is a count, then each string's size and bytes; numbers are 64-bit little-endian. The
// worker begins with {"ready", library, version, archs} or {"missing", names tried}; then for each
// {name, source, option...} it answers
// {"ok" or "failed", log, object, ptx}, until its input ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <unistd.h>

namespace cleave::codegen {

using Message = std::vector<std::string>;

inline constexpr uint64_t kMostStrings = 64, kMostBytes = uint64_t{1} << 30;

// False when the other side is gone. SIGPIPE must be ignored, or the descriptor a socket's.
inline bool write_all(int fd, const void* data, size_t size) {
    const char* at = static_cast<const char*>(data);
    while (size > 0) {
        ssize_t n = ::write(fd, at, size);
        if (n <= 0) {
            if (n < 0 && errno == EINTR) continue;
            return false;
        }
        at += n;
        size -= static_cast<size_t>(n);
    }
    return true;
}

inline void put_number(std::string& text, uint64_t number) {
    for (int i = 0; i < 8; ++i) text += static_cast<char>(number >> (8 * i));
}

inline std::string encode(const Message& message) {
    std::string text;
    put_number(text, message.size());
    for (const std::string& string : message) {
        put_number(text, string.size());
        text += string;
    }
    return text;
}

// The first whole message in `buffer`, which loses it; nothing when there is none yet. `broken`:
// there never will be.
inline std::optional<Message> take_message(std::string& buffer, bool& broken) {
    size_t at = 0;
    auto number = [&](uint64_t& value) {
        if (buffer.size() - at < 8) return false;
        value = 0;
        for (int i = 0; i < 8; ++i)
            value |= uint64_t{static_cast<unsigned char>(buffer[at + static_cast<size_t>(i)])}
                     << (8 * i);
        at += 8;
        return true;
    };
    uint64_t count = 0, size = 0;
    if (!number(count)) return std::nullopt;
    if (count > kMostStrings) broken = true;
    Message message;
    for (uint64_t i = 0; i < count && !broken; ++i) {
        if (!number(size)) return std::nullopt;
        if (size > kMostBytes) broken = true;
        if (broken || buffer.size() - at < size) return std::nullopt;
        message.push_back(buffer.substr(at, size));
        at += size;
    }
    if (broken) return std::nullopt;
    buffer.erase(0, at);
    return message;
}

}  // namespace cleave::codegen
