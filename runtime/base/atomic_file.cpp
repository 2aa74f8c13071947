// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/atomic_file.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>

#include <fmt/format.h>

namespace cleave {

namespace fs = std::filesystem;

namespace {

std::error_code last_error() { return {errno != 0 ? errno : EIO, std::generic_category()}; }

fs::path temporary_name(const fs::path& path) {
    static std::atomic<int> serial{0};
    return fmt::format("{}.{}.{}.tmp", path.string(), ::getpid(), serial++);
}

}  // namespace

AtomicFile::AtomicFile(fs::path path) : path_(std::move(path)), temporary_(temporary_name(path_)) {
    errno = 0;
    stream_.open(temporary_, std::ios::binary | std::ios::trunc);
    if (!stream_) error_ = last_error();
}

AtomicFile::~AtomicFile() {
    if (temporary_.empty()) return;
    stream_.close();
    std::error_code ignored;
    fs::remove(temporary_, ignored);
}

std::error_code AtomicFile::commit() {
    if (error_) return error_;
    errno = 0;
    stream_.close();
    if (!stream_) return error_ = last_error();
    fs::rename(temporary_, path_, error_);
    if (!error_) temporary_.clear();
    return error_;
}

}  // namespace cleave
