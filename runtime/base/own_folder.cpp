// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/own_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <tuple>

#include <fmt/format.h>

#include "runtime/base/folder.h"
#include "runtime/base/reason.h"

namespace cleave {

namespace fs = std::filesystem;

fs::path cache_folder(const char* name) {
    if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache)
        return fs::path(cache) / "cleave" / name;
    if (const char* home = std::getenv("HOME"); home && *home)
        return fs::path(home) / ".cache" / "cleave" / name;
    return {};
}

void make_own_folders(const fs::path& folder) {
    fs::path made;
    for (const fs::path& part : folder) {
        made /= part;
        ::mkdir(made.c_str(), 0700);
    }
}

bool is_own(const struct stat& status) {
    return (status.st_uid == ::geteuid() || status.st_uid == 0) &&
           (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

namespace {

// Of one that is not.
const char* whose(const struct stat& status) {
    return (status.st_mode & (S_IWGRP | S_IWOTH)) != 0 ? "writable by others" : "another user's";
}

// Whether a user namespace leaves out owners, which it then shows as 65534: root, mostly.
bool hides_owners() {
    std::ifstream map("/proc/self/uid_map");
    uint64_t first = 0, as = 0, count = 0;
    return (map >> first >> as >> count) && (first != 0 || as != 0 || count < UINT32_MAX);
}

// Why a folder above `path` cannot be trusted: its owner or writers could put another folder in the
// place of what lies below it, or nobody knows whether they could; empty where none is so. A user
// namespace shows owners that it does not map (root, mostly) as 65534.
std::string why_loose_above(const fs::path& path) {
    constexpr uid_t kUnmapped = 65534;
    for (fs::path at = path; at.has_relative_path();) {
        at = at.parent_path();
        struct stat status{};
        if (::stat(at.c_str(), &status) != 0) {
            if (errno == ENOENT || errno == ENOTDIR) continue;
            return fmt::format("{}: {}", at.string(), std::strerror(errno));
        }
        if (is_own(status)) continue;
        // In a sticky folder others may rename what is their own, and its owner everything.
        const bool is_trusted = status.st_uid == 0 || status.st_uid == ::geteuid() ||
                                (status.st_uid == kUnmapped && hides_owners());
        if ((status.st_mode & S_ISVTX) != 0 && is_trusted) continue;
        const bool unmapped = status.st_uid == kUnmapped && at != path.parent_path() &&
                              (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
        if (!unmapped)
            return fmt::format(
                "{} is {}: others could put another folder in the place of what is below it, {} "
                "too; chmod go-w it, or name another folder by XDG_CACHE_HOME",
                at.string(), whose(status), path.string());
    }
    return {};
}

// As it is written, and past links.
std::string why_loose(const fs::path& folder) {
    std::error_code error;
    const fs::path written = fs::absolute(folder, error).lexically_normal();
    fs::path real;
    if (!error) real = fs::weakly_canonical(folder, error);
    if (error) return fmt::format("{}: {}", folder.string(), error.message());
    std::string why = why_loose_above(written);
    return why.empty() ? why_loose_above(real) : why;
}

}  // namespace

Descriptor open_own(const fs::path& folder, std::string& why) {
    Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    struct stat status{};
    const int failed = opened && ::fstat(opened.get(), &status) == 0 ? 0 : errno;
    why = why_loose(folder);
    if (!why.empty()) return {};
    if (failed != 0)
        why = fmt::format("{}: {}", folder.string(), std::strerror(failed));
    else if (!is_own(status))
        why = fmt::format(
            "{} is {}: others could plant code there; {}name another folder by "
            "XDG_CACHE_HOME",
            folder.string(), whose(status),
            status.st_uid == ::geteuid() ? "chmod go-w it, or " : "");
    return why.empty() ? std::move(opened) : Descriptor();
}

std::chrono::system_clock::time_point used_at(const struct stat& status) {
    using Time = std::chrono::system_clock::time_point;
    return Time(std::chrono::duration_cast<Time::duration>(
        std::chrono::seconds(status.st_mtim.tv_sec) +
        std::chrono::nanoseconds(status.st_mtim.tv_nsec)));
}

std::vector<OwnFile> files_of(int folder, std::string_view suffix, std::error_code& error) {
    std::vector<OwnFile> files;
    const auto yesterday = std::chrono::system_clock::now() - std::chrono::hours(24);
    for (const std::string& name :
         names_in(Descriptor(::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), error)) {
        struct stat status{};
        if (::fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
            if (errno != ENOENT) error = last_error();
            continue;
        }
        if (name.ends_with(".tmp") && used_at(status) < yesterday)
            ::unlinkat(folder, name.c_str(), 0);
        if (name.ends_with(suffix) && S_ISREG(status.st_mode))
            files.push_back({name, int64_t{status.st_size}, used_at(status)});
    }
    std::ranges::sort(files, {}, [](const OwnFile& f) { return std::tie(f.used, f.name); });
    return files;
}

void clear_the_way(int folder, const std::string& name) {
    struct stat status{};
    if (::fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        (!S_ISREG(status.st_mode) || !is_own(status)))
        ::unlinkat(folder, name.c_str(), S_ISDIR(status.st_mode) ? AT_REMOVEDIR : 0);
}

}  // namespace cleave
