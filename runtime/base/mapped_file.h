// SPDX-License-Identifier: Apache-2.0
// A read-only memory map of a whole file. Owns the mapping; spans into it live as long as the
// object. Opening a missing, unreadable or non-regular file is a UserError naming the path. Safe to
// read from several threads.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace cleave {

class MappedFile {
public:
    explicit MappedFile(const std::string& path);
    ~MappedFile();
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;

    std::span<const std::byte> bytes() const { return {data_, size_}; }
    const std::string& path() const { return path_; }

private:
    std::string path_;
    const std::byte* data_ = nullptr;
    size_t size_ = 0;
};

// Asks for bytes of a mapping to be brought from the disk, and does not wait for them: what is read
// soon, in whatever order, then costs no wait for each page. A hint: where it cannot be followed
// nothing is lost but time.
void will_need(std::span<const std::byte> bytes);

// Brings bytes of a mapping from the disk and into the process's own pages, and waits for them:
// who reads them then waits no more. A hint, too, where the system is too old (Linux 5.14).
void bring_in(std::span<const std::byte> bytes);

}  // namespace cleave
