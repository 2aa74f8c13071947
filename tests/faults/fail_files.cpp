// SPDX-License-Identifier: Apache-2.0
// Calls about files that may be made to fail (fail_call.cpp).
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "tests/faults/fail_call.h"

using namespace cleave::faults;

namespace {

// Of an open file, by a call that does not count; all bits where it is not open.
mode_t mode_of(int file) {
    static auto* const kReal = next<int(int, struct stat*)>("fstat");
    struct stat status = {};
    return kReal(file, &status) == 0 ? status.st_mode : ~mode_t{0};
}

// Another program empties the file that was mapped.
void* shrunk(int file, void* mapped) {
    const char* const path = failing == Kind::kShrink ? std::getenv("CLEAVE_FAIL_FILE") : nullptr;
    struct stat one = {}, other = {};
    if (path && fstat(file, &one) == 0 && stat(path, &other) == 0 && one.st_dev == other.st_dev &&
        one.st_ino == other.st_ino && fails(Kind::kShrink) && truncate(path, 0) != 0)
        _exit(70);
    return mapped;
}

}  // namespace

bool cleave::faults::is_event(int file) { return (mode_of(file) & S_IFMT) == 0; }

// NOLINTBEGIN(readability-identifier-naming): the C library's names.
extern "C" {

// The mode of a file that the call may create.
#define CLEAVE_MODE(flags)                 \
    mode_t mode = 0;                       \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list more;                      \
        va_start(more, flags);             \
        mode = va_arg(more, mode_t);       \
        va_end(more);                      \
    }

int open(const char* path, int flags, ...) {
    CLEAVE_MODE(flags)
    static auto* const kReal = next<int(const char*, int, ...)>("open");
    return fails(Kind::kOpen) ? refused(EMFILE, -1) : kReal(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
    CLEAVE_MODE(flags)
    static auto* const kReal = next<int(const char*, int, ...)>("open64");
    return fails(Kind::kOpen) ? refused(EMFILE, -1) : kReal(path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
    CLEAVE_MODE(flags)
    static auto* const kReal = next<int(int, const char*, int, ...)>("openat");
    return fails(Kind::kOpen) ? refused(EMFILE, -1) : kReal(folder, path, flags, mode);
}
int openat64(int folder, const char* path, int flags, ...) {
    CLEAVE_MODE(flags)
    static auto* const kReal = next<int(int, const char*, int, ...)>("openat64");
    return fails(Kind::kOpen) ? refused(EMFILE, -1) : kReal(folder, path, flags, mode);
}
std::FILE* fopen(const char* path, const char* mode) {
    static auto* const kReal = next<std::FILE*(const char*, const char*)>("fopen");
    return fails(Kind::kOpen) ? refused<std::FILE*>(EMFILE, nullptr) : kReal(path, mode);
}
std::FILE* fopen64(const char* path, const char* mode) {
    static auto* const kReal = next<std::FILE*(const char*, const char*)>("fopen64");
    return fails(Kind::kOpen) ? refused<std::FILE*>(EMFILE, nullptr) : kReal(path, mode);
}

ssize_t read(int file, void* to, size_t size) {
    static auto* const kReal = next<ssize_t(int, void*, size_t)>("read");
    return fails(Kind::kRead) ? refused<ssize_t>(EIO, -1) : kReal(file, to, size);
}
ssize_t pread(int file, void* to, size_t size, off_t at) {
    static auto* const kReal = next<ssize_t(int, void*, size_t, off_t)>("pread");
    return fails(Kind::kRead) ? refused<ssize_t>(EIO, -1) : kReal(file, to, size, at);
}
ssize_t pread64(int file, void* to, size_t size, off64_t at) {
    static auto* const kReal = next<ssize_t(int, void*, size_t, off64_t)>("pread64");
    return fails(Kind::kRead) ? refused<ssize_t>(EIO, -1) : kReal(file, to, size, at);
}

ssize_t write(int file, const void* from, size_t size) {
    static auto* const kReal = next<ssize_t(int, const void*, size_t)>("write");
    return file != 2 && !is_event(file) && fails(Kind::kWrite) ? refused<ssize_t>(ENOSPC, -1)
                                                               : kReal(file, from, size);
}
ssize_t writev(int file, const iovec* parts, int count) {
    static auto* const kReal = next<ssize_t(int, const iovec*, int)>("writev");
    return file != 2 && fails(Kind::kWrite) ? refused<ssize_t>(ENOSPC, -1)
                                            : kReal(file, parts, count);
}
ssize_t pwrite64(int file, const void* from, size_t size, off64_t at) {
    static auto* const kReal = next<ssize_t(int, const void*, size_t, off64_t)>("pwrite64");
    return fails(Kind::kWrite) ? refused<ssize_t>(ENOSPC, -1) : kReal(file, from, size, at);
}
int fsync(int file) {
    static auto* const kReal = next<int(int)>("fsync");
    return fails(Kind::kWrite) ? refused(EIO, -1) : kReal(file);
}

int rename(const char* from, const char* to) {
    static auto* const kReal = next<int(const char*, const char*)>("rename");
    return fails(Kind::kRename) ? refused(EIO, -1) : kReal(from, to);
}
int renameat(int folder, const char* from, int other, const char* to) {
    static auto* const kReal = next<int(int, const char*, int, const char*)>("renameat");
    return fails(Kind::kRename) ? refused(EIO, -1) : kReal(folder, from, other, to);
}
int linkat(int folder, const char* from, int other, const char* to, int flags) {
    static auto* const kReal = next<int(int, const char*, int, const char*, int)>("linkat");
    return fails(Kind::kRename) ? refused(EIO, -1) : kReal(folder, from, other, to, flags);
}

int renameat2(int folder, const char* from, int other, const char* to, unsigned flags) {
    using Call = int(int, const char*, int, const char*, unsigned);
    static auto* const kReal = next<Call>("renameat2");
    return fails(Kind::kRename) ? refused(EIO, -1) : kReal(folder, from, other, to, flags);
}
int link(const char* from, const char* to) {
    static auto* const kReal = next<int(const char*, const char*)>("link");
    return fails(Kind::kRename) ? refused(EIO, -1) : kReal(from, to);
}

int unlink(const char* path) {
    static auto* const kReal = next<int(const char*)>("unlink");
    return fails(Kind::kRemove) ? refused(EACCES, -1) : kReal(path);
}
int unlinkat(int folder, const char* path, int flags) {
    static auto* const kReal = next<int(int, const char*, int)>("unlinkat");
    return fails(Kind::kRemove) ? refused(EACCES, -1) : kReal(folder, path, flags);
}
int rmdir(const char* path) {
    static auto* const kReal = next<int(const char*)>("rmdir");
    return fails(Kind::kRemove) ? refused(EACCES, -1) : kReal(path);
}

int close(int file) {
    static auto* const kReal = next<int(int)>("close");
    const bool regular = failing == Kind::kClose && S_ISREG(mode_of(file));
    const int result = kReal(file);
    return regular && fails(Kind::kClose) ? refused(EIO, -1) : result;
}

int mkdir(const char* path, mode_t mode) {
    static auto* const kReal = next<int(const char*, mode_t)>("mkdir");
    return fails(Kind::kFolder) ? refused(EACCES, -1) : kReal(path, mode);
}
DIR* opendir(const char* path) {
    static auto* const kReal = next<DIR*(const char*)>("opendir");
    return fails(Kind::kFolder) ? refused<DIR*>(EACCES, nullptr) : kReal(path);
}
DIR* fdopendir(int file) {
    static auto* const kReal = next<DIR*(int)>("fdopendir");
    return fails(Kind::kFolder) ? refused<DIR*>(ENOMEM, nullptr) : kReal(file);
}

#define CLEAVE_STATE(name, parameters, ...)                                 \
    int name parameters {                                                   \
        static auto* const kReal = next<int parameters>(#name);             \
        return fails(Kind::kState) ? refused(EIO, -1) : kReal(__VA_ARGS__); \
    }
CLEAVE_STATE(stat, (const char* path, struct stat* status), path, status)
CLEAVE_STATE(stat64, (const char* path, struct stat64* status), path, status)
CLEAVE_STATE(lstat, (const char* path, struct stat* status), path, status)
CLEAVE_STATE(lstat64, (const char* path, struct stat64* status), path, status)
CLEAVE_STATE(fstat, (int file, struct stat* status), file, status)
CLEAVE_STATE(fstat64, (int file, struct stat64* status), file, status)
CLEAVE_STATE(fstatat, (int folder, const char* path, struct stat* status, int flags), folder, path,
             status, flags)
CLEAVE_STATE(fstatat64, (int folder, const char* path, struct stat64* status, int flags), folder,
             path, status, flags)
CLEAVE_STATE(statx, (int folder, const char* path, int flags, unsigned mask, struct statx* status),
             folder, path, flags, mask, status)
CLEAVE_STATE(statvfs, (const char* path, struct statvfs* status), path, status)
CLEAVE_STATE(access, (const char* path, int mode), path, mode)
char* realpath(const char* path, char* resolved) {
    static auto* const kReal = next<char*(const char*, char*)>("realpath");
    return fails(Kind::kState) ? refused<char*>(EIO, nullptr) : kReal(path, resolved);
}
ssize_t readlink(const char* path, char* to, size_t size) {
    static auto* const kReal = next<ssize_t(const char*, char*, size_t)>("readlink");
    return fails(Kind::kState) ? refused<ssize_t>(EIO, -1) : kReal(path, to, size);
}

void* mmap(void* at, size_t size, int protection, int flags, int file, off_t offset) {
    static auto* const kReal = next<void*(void*, size_t, int, int, int, off_t)>("mmap");
    if (fails(Kind::kMap)) return refused<void*>(ENOMEM, MAP_FAILED);
    return shrunk(file, kReal(at, size, protection, flags, file, offset));
}
void* mmap64(void* at, size_t size, int protection, int flags, int file, off64_t offset) {
    static auto* const kReal = next<void*(void*, size_t, int, int, int, off64_t)>("mmap64");
    if (fails(Kind::kMap)) return refused<void*>(ENOMEM, MAP_FAILED);
    return shrunk(file, kReal(at, size, protection, flags, file, offset));
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
