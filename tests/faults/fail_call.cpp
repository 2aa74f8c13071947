// SPDX-License-Identifier: Apache-2.0
// A library to preload into a program: from main() on, the Nth call of one kind fails as the system
// would have it fail. Without CLEAVE_FAIL it does nothing.
//   CLEAVE_FAIL=KIND:N          KIND: one of kNames
//   CLEAVE_FAIL_SERVER=1        calls count from the first connection that a client made
//   CLEAVE_FAIL_FILE=FILE       of "shrink": which file becomes empty once it is mapped
//   CLEAVE_FAIL_COUNT=FILE      at the end FILE has how many calls of KIND there were
// "site" is memory, too, but of calls that come from one place (the same kSiteDepth callers) the
// first alone counts: so each place fails once, where each call would take days.
// "close" is of regular files, "folder" makes or lists one, "state" asks whether a file is there
// and what it is. Calls that the C library makes of its own functions do not come here; what is
// written to standard error never fails. Memory inside LLVM never fails, because that ends the
// process (codegen/compile/llvm/target.h); "compile" is its answer that a kernel does not compile
// or link.
#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "codegen/compile/llvm/abi.h"

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the C library's names.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

enum class Kind {
    kNone,
    kMemory,
    kOpen,
    kRead,
    kWrite,
    kRename,
    kMap,
    kThread,
    kProcess,
    kLibrary,
    kCompile,
    kSocket,
    kAccept,
    kWait,
    kReceive,
    kSend,
    kShrink,
    kSite,
    kClose,
    kFolder,
    kState
};
constexpr const char* kNames[] = {"",       "memory", "open",    "read",    "write",   "rename",
                                  "map",    "thread", "process", "library", "compile", "socket",
                                  "accept", "wait",   "receive", "send",    "shrink",  "site",
                                  "close",  "folder", "state"};

Kind failing = Kind::kNone;
long failing_call = 0;
std::atomic<long> calls{0};
std::atomic<bool> armed{false}, has_failed{false};
bool is_server = false;  // armed by its first client
// Of this thread: how deep it is in calls whose memory does not fail.
__attribute__((tls_model("initial-exec"))) thread_local int inside = 0;

struct Inside {
    Inside() { ++inside; }
    ~Inside() { --inside; }
};

// nlohmann's destructor takes memory, and ends the process where there is none: the next call fails
// instead. Where its functions are: the program exports no symbols, so its own table says.
struct Code {
    uintptr_t begin, end;
};
Code json_destructors[16];
size_t num_json_destructors = 0;

void find_json_destructors() {
    const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct stat status = {};
    if (file < 0 || fstat(file, &status) != 0) return;
    const auto size = static_cast<size_t>(status.st_size);
    void* mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (mapped == MAP_FAILED) return;
    const auto* const bytes = static_cast<const char*>(mapped);
    const auto& header = *reinterpret_cast<const Elf64_Ehdr*>(bytes);
    const auto* const sections = reinterpret_cast<const Elf64_Shdr*>(bytes + header.e_shoff);
    uintptr_t base = 0;  // of the program, the first that is listed
    dl_iterate_phdr(
        [](dl_phdr_info* program, size_t, void* to) {
            *static_cast<uintptr_t*>(to) = program->dlpi_addr;
            return 1;
        },
        &base);
    for (int i = 0; i < header.e_shnum; ++i) {
        if (sections[i].sh_type != SHT_SYMTAB) continue;
        const char* const names = bytes + sections[sections[i].sh_link].sh_offset;
        const auto* symbol = reinterpret_cast<const Elf64_Sym*>(bytes + sections[i].sh_offset);
        for (size_t left = sections[i].sh_size / sizeof *symbol; left > 0; --left, ++symbol)
            if (std::strstr(names + symbol->st_name, "10json_value7destroy") &&
                num_json_destructors < std::size(json_destructors))
                json_destructors[num_json_destructors++] = {
                    base + symbol->st_value, base + symbol->st_value + symbol->st_size};
    }
    munmap(mapped, size);
}

bool is_in_json_destructor() {
    void* callers[12];
    const int count = backtrace(callers, std::size(callers));
    for (int i = 0; i < count; ++i)
        for (size_t j = 0; j < num_json_destructors; ++j) {
            const auto at = reinterpret_cast<uintptr_t>(callers[i]);
            if (at > json_destructors[j].begin && at <= json_destructors[j].end) return true;
        }
    return false;
}

// Whether no call came from this place before. A table of hashes (FNV-1a) that is never full.
bool is_new_site() {
    constexpr int kSiteDepth = 6;  // two of them here
    static std::atomic<uint64_t> seen[1 << 18];
    const Inside here;
    void* callers[kSiteDepth];
    const int count = backtrace(callers, kSiteDepth);
    uint64_t hash = 0xcbf29ce484222325u;
    for (int i = 0; i < count; ++i)
        hash = (hash ^ reinterpret_cast<uintptr_t>(callers[i])) * 0x100000001b3u;
    for (uint64_t at = hash;; ++at) {
        std::atomic<uint64_t>& slot = seen[at % std::size(seen)];
        uint64_t was = 0;
        if (slot.compare_exchange_strong(was, hash | 1)) return true;
        if (was == (hash | 1)) return false;
    }
}

bool fails(Kind kind) {
    if (kind == Kind::kMemory && inside > 0) return false;
    if (!armed.load(std::memory_order_relaxed)) return false;
    if (kind == Kind::kMemory && failing == Kind::kSite) {
        const bool is_over = has_failed && failing_call > 0;
        if (is_over || !is_new_site()) return false;
    } else if (kind != failing) {
        return false;
    }
    if (++calls < failing_call || has_failed) return false;
    const Inside here;
    return !(kind == Kind::kMemory && is_in_json_destructor()) && !has_failed.exchange(true);
}

// -1 and errno, as a call of the system answers.
template <class Result>
Result refused(int error, Result answer) {
    errno = error;
    return answer;
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

using Symbol = void*(void*, const char*);
Symbol* real_symbol() {
    static auto* const kReal = reinterpret_cast<Symbol*>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34"));
    return kReal;
}

template <class Call>
Call* next(const char* name) {
    return reinterpret_cast<Call*>(real_symbol()(RTLD_NEXT, name));
}

// Of an open file, by a call that does not count; all bits where it is not open.
mode_t mode_of(int file) {
    static auto* const kReal = next<int(int, struct stat*)>("fstat");
    struct stat status = {};
    return kReal(file, &status) == 0 ? status.st_mode : ~mode_t{0};
}

// A wake-up of threads, which the system does not refuse.
bool is_event(int file) { return (mode_of(file) & S_IFMT) == 0; }

void arm() {
    const char* what = std::getenv("CLEAVE_FAIL");
    if (!what) return;
    for (size_t k = 1; k < std::size(kNames); ++k) {
        const size_t length = std::strlen(kNames[k]);
        if (std::strncmp(what, kNames[k], length) != 0 || what[length] != ':') continue;
        failing = static_cast<Kind>(k);
        failing_call = std::atol(what + length + 1);
        has_failed = failing_call == 0;  // calls are counted alone
    }
    if (failing == Kind::kNone) {
        std::fprintf(stderr, "CLEAVE_FAIL=%s: no such kind of call\n", what);
        _exit(70);
    }
    if (failing == Kind::kMemory || failing == Kind::kSite) find_json_destructors();
    // Children that it starts are not of interest, and would write the same file.
    unsetenv("CLEAVE_FAIL");
    is_server = std::getenv("CLEAVE_FAIL_SERVER") != nullptr;
    armed = !is_server;
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

// ---- LLVM's functions, of which dlsym gives these instead ----

#define CLEAVE_LLVM_FUNCTIONS(X) \
    X(version) X(host_cpu) X(host_features) X(knows_cpu) X(missing_features) X(options) X(unload)
enum Llvm {
#define CLEAVE_LLVM_NUMBER(name) k_##name,
    CLEAVE_LLVM_FUNCTIONS(CLEAVE_LLVM_NUMBER) k_compile,
    k_load
};
void* llvm[k_load + 1];

constexpr const char* kWhy = "made to fail: Cannot allocate memory";

template <Llvm kFunction, class Result, class... Arguments>
Result in_llvm(Arguments... arguments) {
    const Inside here;
    return reinterpret_cast<Result (*)(Arguments...)>(llvm[kFunction])(arguments...);
}
template <Llvm kFunction, class Result, class... Arguments>
auto wrapped(Result (*)(Arguments...)) {
    return &in_llvm<kFunction, Result, Arguments...>;
}

void compile(const char* source, size_t source_size, const char* name, const char* cpu,
             const char* features, cleave_llvm_result* result) {
    if (fails(Kind::kCompile))
        *result = {.log = strdup(kWhy)};
    else
        in_llvm<k_compile, void>(source, source_size, name, cpu, features, result);
}
void* load(const void* const* objects, const size_t* sizes, const char* const* entries,
           size_t count, void** functions, char** log) {
    if (!fails(Kind::kCompile))
        return in_llvm<k_load, void*>(objects, sizes, entries, count, functions, log);
    *log = strdup(kWhy);
    return nullptr;
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

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*routine)(void*),
                   void* argument) {
    using Call = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
    static auto* const kReal = next<Call>("pthread_create");
    return fails(Kind::kThread) ? EAGAIN : kReal(thread, attributes, routine, argument);
}

int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                const posix_spawnattr_t* attributes, char* const argv[], char* const envp[]) {
    using Call = int(pid_t*, const char*, const posix_spawn_file_actions_t*,
                     const posix_spawnattr_t*, char* const[], char* const[]);
    static auto* const kReal = next<Call>("posix_spawn");
    return fails(Kind::kProcess) ? EAGAIN : kReal(pid, path, actions, attributes, argv, envp);
}
pid_t fork() {
    static auto* const kReal = next<pid_t()>("fork");
    return fails(Kind::kProcess) ? refused<pid_t>(EAGAIN, -1) : kReal();
}

void* dlopen(const char* path, int flags) {
    static auto* const kReal = next<void*(const char*, int)>("dlopen");
    const Inside here;  // its constructors
    return fails(Kind::kLibrary) ? kReal("/made to fail", flags) : kReal(path, flags);
}
void* dlsym(void* library, const char* name) {
    void* const real = real_symbol()(library, name);
    const std::string_view wanted(name);
#define CLEAVE_LLVM_WRAPPED(function)                                \
    if (real && wanted == "cleave_llvm_" #function) {                \
        llvm[k_##function] = real;                                   \
        decltype(&cleave_llvm_##function) type = nullptr;            \
        return reinterpret_cast<void*>(wrapped<k_##function>(type)); \
    }
    CLEAVE_LLVM_FUNCTIONS(CLEAVE_LLVM_WRAPPED)
    if (real && wanted == "cleave_llvm_compile") {
        llvm[k_compile] = real;
        return reinterpret_cast<void*>(&compile);
    }
    if (real && wanted == "cleave_llvm_load") {
        llvm[k_load] = real;
        return reinterpret_cast<void*>(&load);
    }
    return real;
}

int socket(int domain, int type, int protocol) {
    static auto* const kReal = next<int(int, int, int)>("socket");
    return fails(Kind::kSocket) ? refused(EMFILE, -1) : kReal(domain, type, protocol);
}
int socketpair(int domain, int type, int protocol, int ends[2]) {
    static auto* const kReal = next<int(int, int, int, int*)>("socketpair");
    return fails(Kind::kSocket) ? refused(EMFILE, -1) : kReal(domain, type, protocol, ends);
}
int setsockopt(int socket, int level, int name, const void* value, socklen_t size) {
    static auto* const kReal = next<int(int, int, int, const void*, socklen_t)>("setsockopt");
    return fails(Kind::kSocket) ? refused(ENOBUFS, -1) : kReal(socket, level, name, value, size);
}
int bind(int socket, const sockaddr* address, socklen_t size) {
    static auto* const kReal = next<int(int, const sockaddr*, socklen_t)>("bind");
    return fails(Kind::kSocket) ? refused(EADDRINUSE, -1) : kReal(socket, address, size);
}
int listen(int socket, int waiting) {
    static auto* const kReal = next<int(int, int)>("listen");
    return fails(Kind::kSocket) ? refused(EADDRINUSE, -1) : kReal(socket, waiting);
}
int getsockname(int socket, sockaddr* address, socklen_t* size) {
    static auto* const kReal = next<int(int, sockaddr*, socklen_t*)>("getsockname");
    return fails(Kind::kSocket) ? refused(ENOBUFS, -1) : kReal(socket, address, size);
}
int accept(int socket, sockaddr* address, socklen_t* size) {
    static auto* const kReal = next<int(int, sockaddr*, socklen_t*)>("accept");
    if (fails(Kind::kAccept)) return refused(EMFILE, -1);
    const int accepted = kReal(socket, address, size);
    if (accepted >= 0 && is_server) armed = true;
    return accepted;
}

int epoll_create1(int flags) {
    static auto* const kReal = next<int(int)>("epoll_create1");
    return fails(Kind::kWait) ? refused(EMFILE, -1) : kReal(flags);
}
// Of a file that is waited for already the system never refuses a change. Asio does not look at the
// answer for its own events and timers.
int epoll_ctl(int poll, int what, int file, epoll_event* event) {
    static auto* const kReal = next<int(int, int, int, epoll_event*)>("epoll_ctl");
    return what == EPOLL_CTL_ADD && !is_event(file) && fails(Kind::kWait)
               ? refused(ENOSPC, -1)
               : kReal(poll, what, file, event);
}
int epoll_wait(int poll, epoll_event* events, int most, int milliseconds) {
    static auto* const kReal = next<int(int, epoll_event*, int, int)>("epoll_wait");
    return fails(Kind::kWait) ? refused(EINTR, -1) : kReal(poll, events, most, milliseconds);
}
int eventfd(unsigned value, int flags) {
    static auto* const kReal = next<int(unsigned, int)>("eventfd");
    return fails(Kind::kWait) ? refused(EMFILE, -1) : kReal(value, flags);
}
int timerfd_create(int clock, int flags) {
    static auto* const kReal = next<int(int, int)>("timerfd_create");
    return fails(Kind::kWait) ? refused(EMFILE, -1) : kReal(clock, flags);
}
int poll(pollfd* files, nfds_t count, int milliseconds) {
    static auto* const kReal = next<int(pollfd*, nfds_t, int)>("poll");
    return fails(Kind::kWait) ? refused(EINTR, -1) : kReal(files, count, milliseconds);
}

ssize_t recv(int socket, void* to, size_t size, int flags) {
    static auto* const kReal = next<ssize_t(int, void*, size_t, int)>("recv");
    return fails(Kind::kReceive) ? refused<ssize_t>(ECONNRESET, -1)
                                 : kReal(socket, to, size, flags);
}
ssize_t recvmsg(int socket, msghdr* message, int flags) {
    static auto* const kReal = next<ssize_t(int, msghdr*, int)>("recvmsg");
    return fails(Kind::kReceive) ? refused<ssize_t>(ECONNRESET, -1) : kReal(socket, message, flags);
}
ssize_t send(int socket, const void* from, size_t size, int flags) {
    static auto* const kReal = next<ssize_t(int, const void*, size_t, int)>("send");
    return fails(Kind::kSend) ? refused<ssize_t>(EPIPE, -1) : kReal(socket, from, size, flags);
}
ssize_t sendmsg(int socket, const msghdr* message, int flags) {
    static auto* const kReal = next<ssize_t(int, const msghdr*, int)>("sendmsg");
    return fails(Kind::kSend) ? refused<ssize_t>(EPIPE, -1) : kReal(socket, message, flags);
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
