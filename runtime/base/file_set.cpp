// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/file_set.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "runtime/base/errors.h"
#include "runtime/base/reason.h"

namespace cleave {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMostOpen = 64;

[[noreturn]] void refuse(const fs::path& path, std::error_code error) {
    throw UserError("{}: cannot write there: {}; name a folder that can be made or written",
                    path.string(), error.message());
}

}  // namespace

FileSet::~FileSet() {
    files_.clear();
    for (const Link& link : links_)
        if (link.is_made) ::unlink(link.path.c_str());
    for (auto folder = made_.rbegin(); folder != made_.rend(); ++folder) ::rmdir(folder->c_str());
}

void FileSet::make_folder(const fs::path& folder) {
    int failed = ENOTDIR;
    fs::path at;
    for (const fs::path& part : folder) {
        at /= part;
        if (::mkdir(at.c_str(), 0777) == 0)
            made_.push_back(at);
        else if (errno != EEXIST)
            failed = errno;
    }
    // What may not be made may be there.
    std::error_code unknown;
    const fs::file_type found = fs::status(folder, unknown).type();
    if (found == fs::file_type::none) failed = unknown.value();
    if (found != fs::file_type::directory) refuse(folder, {failed, std::generic_category()});
}

void FileSet::add(const fs::path& path, const std::function<void(std::ostream&)>& write) {
    auto file = std::make_unique<AtomicFile>(path);
    if (file->error()) refuse(path, file->error());
    write(file->stream());
    // A file without a name is open until the end, and a process has not many.
    if (std::error_code error = files_.size() < kMostOpen ? file->finish() : file->close())
        refuse(path, error);
    files_.emplace_back(path, std::move(file));
}

void FileSet::link(const fs::path& path, const fs::path& to, const std::string& fix) {
    links_.push_back({path, to, fix});
}

void FileSet::commit() {
    for (auto& [path, file] : files_)
        if (std::error_code error = file->close()) refuse(path, error);
    for (Link& link : links_) {
        if (::link(link.to.c_str(), link.path.c_str()) != 0)
            throw UserError("{}: it cannot be hard-linked from {}: {}; {}", link.path.string(),
                            link.to.string(), last_error().message(), link.fix);
        link.is_made = true;
    }
    for (auto& [path, file] : files_)
        if (std::error_code error = file->place()) refuse(path, error);
    for (auto& [path, file] : files_) file->keep();
    links_.clear();
}

}  // namespace cleave
