// SPDX-License-Identifier: Apache-2.0
// Files that appear together once all of them are written, and the folders that they lie in. What
// is not committed leaves nothing: no file, and no folder that was made for one; a process that is
// killed before `commit` leaves folders at most. Where one cannot appear none does, and what was
// there stays. Errors are UserErrors with the path. One thread at a time.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/atomic_file.h"

namespace cleave {

class FileSet {
public:
    FileSet() = default;
    // Removes the folders that were made, where nothing was put into them.
    ~FileSet();
    FileSet(const FileSet&) = delete;
    FileSet& operator=(const FileSet&) = delete;

    // The folder, and those above it that are absent.
    void make_folder(const std::filesystem::path& folder);
    // Writes all of a file, which is not seen before `commit`. Its folder is there.
    void add(const std::filesystem::path& path, const std::function<void(std::ostream&)>& write);
    // A hard link to a file, which appears with the rest. `fix`: what to do where it cannot be.
    void link(const std::filesystem::path& path, const std::filesystem::path& to,
              const std::string& fix);
    // In the order in which they were added.
    void commit();

private:
    struct Link {
        std::filesystem::path path, to;
        std::string fix;
        bool is_made = false;
    };

    std::vector<std::filesystem::path> made_;
    std::vector<Link> links_;
    std::vector<std::pair<std::filesystem::path, std::unique_ptr<AtomicFile>>> files_;
};

}  // namespace cleave
