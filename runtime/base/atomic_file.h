// SPDX-License-Identifier: Apache-2.0
// A file that appears whole or not at all: it is written under a temporary name in the same folder
// and renamed into place by `commit`. Readers never see half of one, processes that write the same
// file do not mix, and what was there stays if anything fails. Errors are returned, not thrown:
// each user says what its file is for. One thread at a time.
#pragma once

#include <filesystem>
#include <fstream>
#include <system_error>

namespace cleave {

class AtomicFile {
public:
    // Creates the temporary file, empty.
    explicit AtomicFile(std::filesystem::path path);
    // Removes it again unless it was committed.
    ~AtomicFile();
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;

    // Why the temporary file could not be made; no error otherwise.
    std::error_code error() const { return error_; }
    std::ostream& stream() { return stream_; }

    // Closes the file and gives it its name. The first error since the beginning, or none.
    [[nodiscard]] std::error_code commit();

private:
    std::filesystem::path path_, temporary_;
    std::ofstream stream_;
    std::error_code error_;
};

}  // namespace cleave
