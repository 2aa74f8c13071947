// SPDX-License-Identifier: Apache-2.0
// An open file's number, closed when its owner goes. Invariant: a number has one owner.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

namespace cleave {

class Descriptor {
public:
    Descriptor() = default;
    // As ::open gives it: below 0 where nothing is open.
    explicit Descriptor(int number) : number_(number) {}
    ~Descriptor() {
        if (number_ >= 0) ::close(number_);
    }
    Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }

    explicit operator bool() const { return number_ >= 0; }
    int get() const { return number_; }
    // Whose close may fail, as of a file on a network, is closed by its owner.
    int release() { return std::exchange(number_, -1); }

private:
    int number_ = -1;
};

// The next `size` bytes of a file, fewer where it ends before. Nothing, with errno, for an error.
inline std::optional<std::string> read_bytes(const Descriptor& file, size_t size) {
    std::string bytes(size, '\0');
    size_t done = 0;
    while (done < size) {
        const ssize_t got = ::read(file.get(), bytes.data() + done, size - done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return std::nullopt;
        if (got == 0) break;
        done += static_cast<size_t>(got);
    }
    bytes.resize(done);
    return bytes;
}

}  // namespace cleave
