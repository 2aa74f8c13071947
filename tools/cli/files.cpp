// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/files.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <vector>

#include <unistd.h>

#include "runtime/base/atomic_file.h"
#include "runtime/base/errors.h"

namespace cleave::tools {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostText = size_t{256} << 20;

[[noreturn]] void refuse(const std::string& flag, const std::string& path, std::error_code error) {
    throw UserError(
        "{} {}: cannot write there: {}; name a file in a folder that exists and is writable", flag,
        path, error.message());
}

}  // namespace

std::string read_standard_input() {
    std::string text;
    std::vector<char> part(size_t{1} << 16);
    for (;;) {
        const ssize_t got = ::read(STDIN_FILENO, part.data(), part.size());
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) throw UserError("standard input cannot be read: {}", std::strerror(errno));
        if (got == 0) return text;
        text.append(part.data(), static_cast<size_t>(got));
        if (text.size() > kMostText)
            throw UserError("standard input: a text of more than {} bytes", kMostText);
    }
}

std::string read_text_file(const std::string& flag, const std::string& path) {
    std::error_code ignored;
    if (fs::is_directory(path, ignored))
        throw UserError("{} {}: this is a folder; name a text file in it", flag, path);
    errno = 0;
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    std::vector<char> part(size_t{1} << 16);
    for (size_t bytes = 0; file.read(part.data(), std::ssize(part)), file.gcount() > 0;) {
        text.write(part.data(), file.gcount());
        bytes += static_cast<size_t>(file.gcount());
        if (bytes > kMostText)
            throw UserError("{} {}: a text of more than {} bytes", flag, path, kMostText);
    }
    if (!file.is_open() || file.bad() || text.bad())
        throw UserError("{} {}: cannot be read: {}", flag, path,
                        errno != 0 ? std::strerror(errno) : "reading failed");
    return std::move(text).str();
}

void check_writable(const std::string& flag, const std::string& path) {
    std::error_code ignored;
    if (fs::is_directory(path, ignored))
        throw UserError("{} {}: this is a folder; name a file", flag, path);
    // A pipe that is opened and closed has ended for its reader: that error comes with the writing.
    if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored)) return;
    AtomicFile file(path);
    if (file.error()) refuse(flag, path, file.error());
}

void write_file(const std::string& flag, const std::string& path, std::span<const char> bytes) {
    AtomicFile file(path);
    file.stream().write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (std::error_code error = file.commit()) refuse(flag, path, error);
}

}  // namespace cleave::tools
