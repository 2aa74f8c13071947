// SPDX-License-Identifier: Apache-2.0
// A library to preload into a program: from main() on, the Nth call of one kind fails as the system
// would have it fail. Without CLEAVE_FAIL it does nothing.
//   CLEAVE_FAIL=KIND:N          KIND: one of kNames
//   CLEAVE_FAIL_SERVER=1        calls count from the first connection that a client made
//   CLEAVE_FAIL_FILE=FILE       of "shrink": which file becomes empty once it is mapped
//   CLEAVE_FAIL_COUNT=FILE      at the end FILE has how many calls of KIND there were
// "site" is memory, too, but of calls that come from one place (the same kSiteDepth callers) the
// first alone counts: so each place fails once, where each call would take days.
// "close" is of regular files, "folder" makes or lists one, "remove" removes a file or a folder,
// "state" asks whether a file is there and what it is. Calls that the C library makes of its own
// functions do not come here; what is written to standard error never fails. Memory inside LLVM
// never fails, because that ends the process (codegen/compile/llvm/target.h); "compile" is its
// answer that a kernel does not compile or link.
#include <dlfcn.h>
#include <elf.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string_view>

#include "codegen/compile/llvm/abi.h"
#include "tests/faults/fail_call.h"

using namespace cleave::faults;

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the C library's names.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

constexpr const char* kNames[] = {"",       "memory", "open",    "read",    "write",   "rename",
                                  "map",    "thread", "process", "library", "compile", "socket",
                                  "accept", "wait",   "receive", "send",    "shrink",  "site",
                                  "close",  "folder", "state",   "remove"};

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

using Symbol = void*(void*, const char*);
Symbol* real_symbol() {
    static auto* const kReal = reinterpret_cast<Symbol*>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34"));
    return kReal;
}

}  // namespace

Kind cleave::faults::failing = Kind::kNone;

bool cleave::faults::fails(Kind kind) {
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

void cleave::faults::note_client() {
    if (is_server) armed = true;
}

void* cleave::faults::next_symbol(const char* name) { return real_symbol()(RTLD_NEXT, name); }

namespace {

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

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
