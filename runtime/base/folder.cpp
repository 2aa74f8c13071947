// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/folder.h"

#include <dirent.h>
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

#include "runtime/base/errors.h"

namespace cleave {

std::vector<std::string> names_in(Descriptor folder, std::error_code& error) {
    error.clear();
    std::vector<std::string> names;
    const std::unique_ptr<DIR, int (*)(DIR*)> listed(folder ? ::fdopendir(folder.get()) : nullptr,
                                                     ::closedir);
    if (listed) {
        folder.release();
        errno = 0;
    }
    while (const dirent* entry = listed ? ::readdir(listed.get()) : nullptr) {
        const std::string_view name = entry->d_name;
        if (name != "." && name != "..") names.emplace_back(name);
        errno = 0;  // which readdir leaves alone at the end
    }
    if (errno == ENOMEM) throw std::bad_alloc();
    error.assign(errno, std::generic_category());
    std::sort(names.begin(), names.end());
    return names;
}

std::vector<std::string> names_in(const std::filesystem::path& folder, std::error_code& error) {
    return names_in(Descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)), error);
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
    std::error_code ignored;
    return names_in(folder, ignored);
}

std::vector<std::string> names_if_folder(const std::filesystem::path& path) {
    std::error_code error;
    std::vector<std::string> names = names_in(path, error);
    const bool has_none =
        error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
    if (error && !has_none)
        throw UserError("{}: cannot read the folder: {}", path.string(), error.message());
    return names;
}

}  // namespace cleave
