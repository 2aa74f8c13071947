// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/files.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "runtime/base/atomic_file.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/errors.h"
#include "runtime/base/inputs.h"

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

namespace {

// All that comes. Nothing, with errno, for an error; UserError of `whose` for a text without an
// end.
std::optional<std::string> read_all(const Descriptor& file, const std::string& whose) {
    std::string text;
    while (const std::optional<std::string> part = read_bytes(file, size_t{1} << 16)) {
        if (part->empty()) return text;
        text += *part;
        if (text.size() > kMostText)
            throw UserError("{}: a text of more than {} bytes", whose, kMostText);
    }
    return std::nullopt;
}

}  // namespace

std::string read_standard_input() {
    const Descriptor input(::dup(STDIN_FILENO));
    std::optional<std::string> text = read_all(input, "standard input");
    if (!text) throw UserError("standard input cannot be read: {}", std::strerror(errno));
    return *std::move(text);
}

std::string read_text_file(const std::string& flag, const std::string& path) {
    if (path == "-") return read_standard_input();
    std::error_code ignored;  // what opens it says more
    if (fs::is_directory(path, ignored))
        throw UserError("{} {}: this is a folder; name a text file in it", flag, path);
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    std::optional<std::string> text;
    if (file) text = read_all(file, flag + " " + path);
    if (!text) throw UserError("{} {}: cannot be read: {}", flag, path, std::strerror(errno));
    note_input(path);
    return *std::move(text);
}

void refuse_input(const std::string& flag, const std::string& path) {
    if (is_input(path))
        throw UserError(
            "{} {}: this command reads that file, and would replace it; name another one", flag,
            path);
}

void check_writable(const std::string& flag, const std::string& path) {
    if (path == "-")
        throw UserError("{} -: this is not written to standard output; name a file (./- is one)",
                        flag);
    refuse_input(flag, path);
    std::error_code error;
    const fs::file_type type = fs::status(path, error).type();
    if (type == fs::file_type::none) refuse(flag, path, error);
    if (type == fs::file_type::directory)
        throw UserError("{} {}: this is a folder; name a file", flag, path);
    // A pipe that is opened and closed has ended for its reader: that error comes with the writing.
    if (type != fs::file_type::not_found && type != fs::file_type::regular) return;
    AtomicFile file(path);
    if (file.error()) refuse(flag, path, file.error());
}

void write_file(const std::string& flag, const std::string& path, std::span<const char> bytes) {
    refuse_input(flag, path);
    AtomicFile file(path);
    file.stream().write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (std::error_code error = file.commit()) refuse(flag, path, error);
}

}  // namespace cleave::tools
