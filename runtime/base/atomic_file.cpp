// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/atomic_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <random>
#include <streambuf>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "runtime/base/descriptor.h"
#include "runtime/base/reason.h"

namespace cleave {

namespace {

// A device or a pipe is written where it is: a file of its name would take its place. Other things
// that are no files (block devices, sockets) are not written at all.
bool is_special(const struct stat& found) {
    return !S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode);
}

Descriptor open_special(int folder, const std::string& path, std::error_code& error) {
    Descriptor file(::openat(folder, path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC));
    struct stat opened{};
    if (!file || ::fstat(file.get(), &opened) != 0)
        error = last_error();
    else if (!S_ISCHR(opened.st_mode) && !S_ISFIFO(opened.st_mode))
        error = std::make_error_code(std::errc::operation_not_supported);
    return error ? Descriptor() : std::move(file);
}

}  // namespace

// Writes to a descriptor and keeps the first error, which an std::filebuf does not tell.
class AtomicFile::Buffer final : public std::streambuf {
public:
    explicit Buffer(Descriptor file) : file_(std::move(file)) { empty(); }

    std::error_code finish() {
        flush();
        return error_;
    }
    int descriptor() const { return file_.get(); }
    // A file on a network may be refused no sooner than here.
    std::error_code close() {
        if (::close(file_.release()) != 0 && !error_) error_ = last_error();
        return error_;
    }

protected:
    int_type overflow(int_type c) override {
        if (!flush()) return traits_type::eof();
        if (!traits_type::eq_int_type(c, traits_type::eof())) sputc(traits_type::to_char_type(c));
        return traits_type::not_eof(c);
    }
    int sync() override { return flush() ? 0 : -1; }

    pos_type seekoff(off_type offset, std::ios_base::seekdir from,
                     std::ios_base::openmode) override {
        if (!flush()) return pos_type(off_type(-1));
        const int whence = from == std::ios_base::beg   ? SEEK_SET
                           : from == std::ios_base::cur ? SEEK_CUR
                                                        : SEEK_END;
        const off_t position = ::lseek(file_.get(), offset, whence);
        if (position < 0) error_ = last_error();  // a pipe, or past what a file can be
        return pos_type(position);
    }
    pos_type seekpos(pos_type position, std::ios_base::openmode which) override {
        return seekoff(off_type(position), std::ios_base::beg, which);
    }

private:
    void empty() { setp(bytes_.data(), bytes_.data() + bytes_.size()); }

    bool flush() {
        for (const char* at = pbase(); at < pptr() && !error_;) {
            const ssize_t written = ::write(file_.get(), at, static_cast<size_t>(pptr() - at));
            if (written >= 0)
                at += written;
            else if (errno != EINTR)
                error_ = last_error();
        }
        empty();
        return !error_;
    }

    Descriptor file_;
    std::vector<char> bytes_ = std::vector<char>(size_t{1} << 16);
    std::error_code error_;
};

AtomicFile::AtomicFile(const std::filesystem::path& path, mode_t mode, int folder)
    : folder_(folder), path_(path.string()) {
    struct stat found{}, replaced{};
    const bool special = ::fstatat(folder_, path_.c_str(), &found, 0) == 0 && is_special(found);
    const bool replaces = ::fstatat(folder_, path_.c_str(), &replaced, AT_SYMLINK_NOFOLLOW) == 0 &&
                          S_ISREG(replaced.st_mode) && replaced.st_uid == ::geteuid();
    if (special) {
        if (Descriptor file = open_special(folder_, path_, error_))
            buffer_ = std::make_unique<Buffer>(std::move(file));
    }
    if (!special) {
        Descriptor file = open_nameless(mode);
        nameless_ = static_cast<bool>(file);
        if (!file) file = open_temporary(mode);
        // What takes a file's place has its permissions, where the system allows it.
        if (file && replaces) std::ignore = ::fchmod(file.get(), replaced.st_mode & 0777);
        if (file) buffer_ = std::make_unique<Buffer>(std::move(file));
    }
    stream_ = std::make_unique<std::ostream>(buffer_.get());  // without a buffer each write fails
}

// Nothing is left of a file without a name whatever ends the process (open(2), O_TMPFILE). It has
// one by /proc alone. No file systems of a network have them.
Descriptor AtomicFile::open_nameless(mode_t mode) {
    if (::access("/proc/self/fd", X_OK) != 0) return {};
    std::string parent = std::filesystem::path(path_).parent_path().string();
    if (parent.empty()) parent = ".";
    return Descriptor(::openat(folder_, parent.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, mode));
}

// Tries random names until `made` says that one is its file's.
template <class Make>
void AtomicFile::name_temporary(Make&& made) {
    std::random_device random;
    for (int attempt = 0; attempt < 16; ++attempt) {
        temporary_ = fmt::format("{}.{:08x}{:08x}.tmp", path_, random(), random());
        if (made()) return error_.clear();
        error_ = last_error();
        if (error_ != std::errc::file_exists) break;
    }
    temporary_.clear();
}

Descriptor AtomicFile::open_temporary(mode_t mode) {
    Descriptor file;
    name_temporary([&] {
        file = Descriptor(::openat(folder_, temporary_.c_str(),
                                   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
        return static_cast<bool>(file);
    });
    return file;
}

AtomicFile::~AtomicFile() {
    if (placed_ == Placed::kInstead)
        ::renameat2(folder_, temporary_.c_str(), folder_, path_.c_str(), RENAME_EXCHANGE);
    if (placed_ == Placed::kNew) ::unlinkat(folder_, path_.c_str(), 0);
    if (!temporary_.empty()) ::unlinkat(folder_, temporary_.c_str(), 0);
}

std::error_code AtomicFile::finish() {
    if (error_ || !buffer_) return error_;
    stream_ = std::make_unique<std::ostream>(nullptr);
    return error_ = buffer_->finish();
}

std::error_code AtomicFile::close() {
    if (finish() || !buffer_) return error_;
    if (nameless_) {
        const std::string opened = fmt::format("/proc/self/fd/{}", buffer_->descriptor());
        name_temporary([&] {
            return ::linkat(AT_FDCWD, opened.c_str(), folder_, temporary_.c_str(),
                            AT_SYMLINK_FOLLOW) == 0;
        });
    }
    const std::error_code closed = buffer_->close();
    if (!error_) error_ = closed;
    buffer_.reset();
    return error_;
}

std::error_code AtomicFile::place() {
    if (close() || temporary_.empty()) return error_;
    struct stat found{};
    const bool is_there = ::fstatat(folder_, path_.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0;
    if (is_there && !S_ISDIR(found.st_mode) &&
        ::renameat2(folder_, temporary_.c_str(), folder_, path_.c_str(), RENAME_EXCHANGE) == 0) {
        placed_ = Placed::kInstead;
    } else if (::renameat(folder_, temporary_.c_str(), folder_, path_.c_str()) == 0) {
        temporary_.clear();
        placed_ = is_there ? Placed::kForGood : Placed::kNew;
    } else {
        error_ = last_error();
    }
    return error_;
}

void AtomicFile::keep() {
    if (placed_ == Placed::kInstead) ::unlinkat(folder_, temporary_.c_str(), 0);
    temporary_.clear();
    placed_ = Placed::kForGood;
}

std::error_code AtomicFile::commit() {
    if (close()) return error_;
    if (temporary_.empty()) return error_;  // a device or a pipe
    if (::renameat(folder_, temporary_.c_str(), folder_, path_.c_str()) != 0) error_ = last_error();
    if (!error_) temporary_.clear();
    return error_;
}

}  // namespace cleave
