// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/path_state.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "runtime/base/errors.h"

namespace cleave {

namespace fs = std::filesystem;

fs::file_type type_at(const fs::path& path) {
    std::error_code error;
    const fs::file_type type = fs::status(path, error).type();
    if (type == fs::file_type::none) throw UserError("{}: {}", path.string(), error.message());
    return type;
}

bool is_there(const fs::path& path) { return type_at(path) != fs::file_type::not_found; }
bool is_folder(const fs::path& path) { return type_at(path) == fs::file_type::directory; }
bool is_file(const fs::path& path) { return type_at(path) == fs::file_type::regular; }

fs::path real_path(const fs::path& path) {
    std::error_code error;
    fs::path real = fs::weakly_canonical(path, error);
    if (error == std::errc::no_such_file_or_directory) return fs::absolute(path).lexically_normal();
    if (error) throw UserError("{}: {}", path.string(), error.message());
    return real;
}

std::optional<uint64_t> size_at(const fs::path& path) {
    struct stat status{};
    if (::stat(path.c_str(), &status) == 0) {
        if (!S_ISREG(status.st_mode)) return std::nullopt;
        return static_cast<uint64_t>(status.st_size);
    }
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    throw UserError("{}: {}", path.string(), std::strerror(errno));
}

}  // namespace cleave
