// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/files.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "runtime/base/errors.h"

namespace cleave::tools {
namespace {

namespace fs = std::filesystem;

std::string temporary_name(const std::string& path) { return path + ".part"; }

[[noreturn]] void refuse(const std::string& flag, const std::string& path, int error) {
    std::error_code ignored;
    fs::remove(temporary_name(path), ignored);
    throw UserError(
        "{} {}: cannot write there: {}; name a file in a folder that exists and is writable", flag,
        path, std::strerror(error));
}

// Devices such as /dev/stdout are written in place: there is nothing to rename over.
bool in_place(const std::string& path) {
    std::error_code ignored;
    return fs::exists(path, ignored) && !fs::is_regular_file(path, ignored);
}

}  // namespace

void check_writable(const std::string& flag, const std::string& path) {
    std::error_code ignored;
    if (fs::is_directory(path, ignored))
        throw UserError("{} {}: this is a folder; name a file", flag, path);
    if (in_place(path)) return;
    std::ofstream file(temporary_name(path), std::ios::binary);
    if (!file) refuse(flag, path, errno);
    file.close();
    fs::remove(temporary_name(path), ignored);
}

void write_file(const std::string& flag, const std::string& path, std::span<const char> bytes) {
    const std::string target = in_place(path) ? path : temporary_name(path);
    std::ofstream file(target, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    if (!file) refuse(flag, path, errno);
    if (target != path && std::rename(target.c_str(), path.c_str()) != 0) refuse(flag, path, errno);
}

}  // namespace cleave::tools
