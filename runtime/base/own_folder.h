// SPDX-License-Identifier: Apache-2.0
// Folders that nobody but the user (or root) may write to: what lies in them is taken without a
// look at who put it there.
#pragma once

#include <sys/stat.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "runtime/base/descriptor.h"

namespace cleave {

inline constexpr const char* kNoCachePlace = "neither XDG_CACHE_HOME nor HOME is set";

// $XDG_CACHE_HOME/cleave/NAME or ~/.cache/cleave/NAME, which need not be there; empty where neither
// variable is set (kNoCachePlace).
std::filesystem::path cache_folder(const char* name);

// Makes it and what is above it where they are missing, for the user alone, whatever the umask.
// What fails shows when it is opened.
void make_own_folders(const std::filesystem::path& folder);

// Whether it is the user's or root's, and nobody else may write to it.
bool is_own(const struct stat& status);

// The folder, opened, where it is the user's own and nobody else could put another in its place;
// nothing otherwise, with the reason and what to do in `why`.
Descriptor open_own(const std::filesystem::path& folder, std::string& why);

struct OwnFile {
    std::string name;
    int64_t bytes = 0;
    std::chrono::system_clock::time_point used;  // last: its time of modification
};
std::chrono::system_clock::time_point used_at(const struct stat& status);

// The files of an opened folder whose names end so, used longest ago first. Temporaries of
// processes that were killed go: one that is written now is younger than a day. `error`: why not
// all is known; else it is cleared.
std::vector<OwnFile> files_of(int folder, std::string_view suffix, std::error_code& error);

// Removes what has a file's name in an opened folder and is no file (a pipe would wait for a
// reader, a device take it), or another's, whose mode a new one would have.
void clear_the_way(int folder, const std::string& name);

}  // namespace cleave
