// SPDX-License-Identifier: Apache-2.0
// A library to preload into a program: from main() on, the Nth call of one kind fails as the system
// would have it fail. Without CLEAVE_FAIL it does nothing.
//   CLEAVE_FAIL=KIND:N          KIND: memory, open, read, write, rename, map, thread or process
//   CLEAVE_FAIL_COUNT=FILE      at the end FILE has how many calls of KIND there were
// Calls that the C library makes of its own functions do not come here; what is written to standard
// error never fails.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

enum class Kind { kNone, kMemory, kOpen, kRead, kWrite, kRename, kMap, kThread, kProcess };
constexpr const char* kNames[] = {"",       "memory", "open",   "read",   "write",
                                  "rename", "map",    "thread", "process"};

Kind failing = Kind::kNone;
long failing_call = 0;
std::atomic<long> calls{0};
std::atomic<bool> armed{false};

bool fails(Kind kind) {
    return armed.load(std::memory_order_relaxed) && kind == failing && ++calls == failing_call;
}

// -1 and errno, as a call of the system answers.
template <class Result>
Result refused(int error, Result answer) {
    errno = error;
    return answer;
}

template <class Call>
Call* next(const char* name) {
    return reinterpret_cast<Call*>(dlsym(RTLD_NEXT, name));
}

void arm() {
    const char* what = std::getenv("CLEAVE_FAIL");
    if (!what) return;
    for (size_t k = 1; k < std::size(kNames); ++k) {
        const size_t length = std::strlen(kNames[k]);
        if (std::strncmp(what, kNames[k], length) != 0 || what[length] != ':') continue;
        failing = static_cast<Kind>(k);
        failing_call = std::atol(what + length + 1);
    }
    if (failing == Kind::kNone) {
        std::fprintf(stderr, "CLEAVE_FAIL=%s: no such kind of call\n", what);
        _exit(70);
    }
    // Children that it starts are not of interest, and would write the same file.
    unsetenv("CLEAVE_FAIL");
    armed = true;
}

using Main = int(int, char**, char**);
Main* real_main = nullptr;

int main_with_faults(int argc, char** argv, char** environment) {
    arm();
    const int code = real_main(argc, argv, environment);
    armed = false;
    if (const char* path = std::getenv("CLEAVE_FAIL_COUNT"))
        if (std::FILE* file = std::fopen(path, "w")) {
            std::fprintf(file, "%ld\n", calls.load());
            std::fclose(file);
        }
    return code;
}

}  // namespace

extern "C" {

int __libc_start_main(Main* program, int argc, char** argv, void (*init)(), void (*fini)(),
                      void (*rtld_fini)(), void* stack_end) {
    using Start = int(Main*, int, char**, void (*)(), void (*)(), void (*)(), void*);
    real_main = program;
    return next<Start>("__libc_start_main")(main_with_faults, argc, argv, init, fini, rtld_fini,
                                            stack_end);
}

void* malloc(size_t size) {
    return fails(Kind::kMemory) ? refused<void*>(ENOMEM, nullptr) : __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
    return fails(Kind::kMemory) ? refused<void*>(ENOMEM, nullptr) : __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
    return fails(Kind::kMemory) ? refused<void*>(ENOMEM, nullptr) : __libc_realloc(old, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
    return fails(Kind::kMemory) ? refused<void*>(ENOMEM, nullptr)
                                : __libc_memalign(alignment, size);
}
int posix_memalign(void** memory, size_t alignment, size_t size) {
    if (fails(Kind::kMemory)) return ENOMEM;
    *memory = __libc_memalign(alignment, size);
    return *memory ? 0 : ENOMEM;
}

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
    static auto* const real = next<int(const char*, int, ...)>("open");
    return fails(Kind::kOpen) ? refused(EMFILE, -1) : real(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
    CLEAVE_MODE(flags)
    static auto* const real = next<int(const char*, int, ...)>("open64");
    return fails(Kind::kOpen) ? refused(EMFILE, -1) : real(path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
    CLEAVE_MODE(flags)
    static auto* const real = next<int(int, const char*, int, ...)>("openat");
    return fails(Kind::kOpen) ? refused(EMFILE, -1) : real(folder, path, flags, mode);
}
int openat64(int folder, const char* path, int flags, ...) {
    CLEAVE_MODE(flags)
    static auto* const real = next<int(int, const char*, int, ...)>("openat64");
    return fails(Kind::kOpen) ? refused(EMFILE, -1) : real(folder, path, flags, mode);
}
std::FILE* fopen(const char* path, const char* mode) {
    static auto* const real = next<std::FILE*(const char*, const char*)>("fopen");
    return fails(Kind::kOpen) ? refused<std::FILE*>(EMFILE, nullptr) : real(path, mode);
}
std::FILE* fopen64(const char* path, const char* mode) {
    static auto* const real = next<std::FILE*(const char*, const char*)>("fopen64");
    return fails(Kind::kOpen) ? refused<std::FILE*>(EMFILE, nullptr) : real(path, mode);
}

ssize_t read(int file, void* to, size_t size) {
    static auto* const real = next<ssize_t(int, void*, size_t)>("read");
    return fails(Kind::kRead) ? refused<ssize_t>(EIO, -1) : real(file, to, size);
}
ssize_t pread(int file, void* to, size_t size, off_t at) {
    static auto* const real = next<ssize_t(int, void*, size_t, off_t)>("pread");
    return fails(Kind::kRead) ? refused<ssize_t>(EIO, -1) : real(file, to, size, at);
}
ssize_t pread64(int file, void* to, size_t size, off64_t at) {
    static auto* const real = next<ssize_t(int, void*, size_t, off64_t)>("pread64");
    return fails(Kind::kRead) ? refused<ssize_t>(EIO, -1) : real(file, to, size, at);
}

ssize_t write(int file, const void* from, size_t size) {
    static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
    return file != 2 && fails(Kind::kWrite) ? refused<ssize_t>(ENOSPC, -1) : real(file, from, size);
}
ssize_t writev(int file, const iovec* parts, int count) {
    static auto* const real = next<ssize_t(int, const iovec*, int)>("writev");
    return file != 2 && fails(Kind::kWrite) ? refused<ssize_t>(ENOSPC, -1)
                                            : real(file, parts, count);
}
ssize_t pwrite64(int file, const void* from, size_t size, off64_t at) {
    static auto* const real = next<ssize_t(int, const void*, size_t, off64_t)>("pwrite64");
    return fails(Kind::kWrite) ? refused<ssize_t>(ENOSPC, -1) : real(file, from, size, at);
}
int fsync(int file) {
    static auto* const real = next<int(int)>("fsync");
    return fails(Kind::kWrite) ? refused(EIO, -1) : real(file);
}

int rename(const char* from, const char* to) {
    static auto* const real = next<int(const char*, const char*)>("rename");
    return fails(Kind::kRename) ? refused(EIO, -1) : real(from, to);
}
int renameat(int folder, const char* from, int other, const char* to) {
    static auto* const real = next<int(int, const char*, int, const char*)>("renameat");
    return fails(Kind::kRename) ? refused(EIO, -1) : real(folder, from, other, to);
}
int linkat(int folder, const char* from, int other, const char* to, int flags) {
    static auto* const real = next<int(int, const char*, int, const char*, int)>("linkat");
    return fails(Kind::kRename) ? refused(EIO, -1) : real(folder, from, other, to, flags);
}

void* mmap(void* at, size_t size, int protection, int flags, int file, off_t offset) {
    static auto* const real = next<void*(void*, size_t, int, int, int, off_t)>("mmap");
    return fails(Kind::kMap) ? refused<void*>(ENOMEM, MAP_FAILED)
                             : real(at, size, protection, flags, file, offset);
}
void* mmap64(void* at, size_t size, int protection, int flags, int file, off64_t offset) {
    static auto* const real = next<void*(void*, size_t, int, int, int, off64_t)>("mmap64");
    return fails(Kind::kMap) ? refused<void*>(ENOMEM, MAP_FAILED)
                             : real(at, size, protection, flags, file, offset);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*routine)(void*),
                   void* argument) {
    using Call = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
    static auto* const real = next<Call>("pthread_create");
    return fails(Kind::kThread) ? EAGAIN : real(thread, attributes, routine, argument);
}

int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                const posix_spawnattr_t* attributes, char* const argv[], char* const envp[]) {
    using Call = int(pid_t*, const char*, const posix_spawn_file_actions_t*,
                     const posix_spawnattr_t*, char* const[], char* const[]);
    static auto* const real = next<Call>("posix_spawn");
    return fails(Kind::kProcess) ? EAGAIN : real(pid, path, actions, attributes, argv, envp);
}
pid_t fork() {
    static auto* const real = next<pid_t()>("fork");
    return fails(Kind::kProcess) ? refused<pid_t>(EAGAIN, -1) : real();
}

}  // extern "C"
