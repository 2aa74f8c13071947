// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/dynamic_library.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <mutex>
#include <utility>

#include <dlfcn.h>

#include "runtime/base/folder.h"

namespace cleave {

namespace {

namespace fs = std::filesystem;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kIsolate = 0;  // sanitizers refuse RTLD_DEEPBIND, which would go past their malloc
#else
constexpr int kIsolate = RTLD_DEEPBIND;
#endif

// The folder of the file that holds this code: the executable, or a shared libcleave.
fs::path own_folder() {
    Dl_info info{};
    std::error_code error;
    if (::dladdr(reinterpret_cast<const void*>(&library_names), &info) && info.dli_fname) {
        fs::path file = fs::canonical(info.dli_fname, error);
        if (!error) return file.parent_path();
    }
    fs::path executable = fs::read_symlink("/proc/self/exe", error);
    return error ? fs::path() : executable.parent_path();
}

}  // namespace

std::optional<DynamicLibrary> DynamicLibrary::open_first(std::span<const std::string> names,
                                                         std::string* why, Scope scope) {
    const int mode = RTLD_NOW | (scope == Scope::kGlobal ? RTLD_GLOBAL : RTLD_LOCAL) |
                     (scope == Scope::kIsolated ? kIsolate : 0);
    std::string reasons;
    for (const std::string& name : names) {
        if (void* handle = ::dlopen(name.c_str(), mode)) return DynamicLibrary(handle, name);
        // The loader names the file that it misses, which may be one that `name` needs.
        const char* error = ::dlerror();
        const std::string message = error ? error : "it cannot be opened";
        reasons += reasons.empty() ? "" : "; ";
        if (!message.starts_with(name + ":")) reasons.append(name).append(": ");
        reasons += message;
    }
    if (why) *why = reasons;
    return std::nullopt;
}

DynamicLibrary::~DynamicLibrary() {
    if (handle_) ::dlclose(handle_);
}

DynamicLibrary::DynamicLibrary(DynamicLibrary&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)), name_(std::move(other.name_)) {}

DynamicLibrary& DynamicLibrary::operator=(DynamicLibrary&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(name_, other.name_);
    return *this;
}

void* DynamicLibrary::symbol(const char* name) const { return ::dlsym(handle_, name); }

std::vector<std::string> library_names(const std::string& file) {
    std::vector<std::string> names;
    if (const fs::path folder = own_folder(); !folder.empty()) {
        names.push_back((folder / ".." / "lib" / file).lexically_normal().string());
        names.push_back((folder / file).string());
    }
    names.push_back(file);
    return names;
}

DynamicLibrary& kept_open(DynamicLibrary library) {
    static std::mutex mutex;
    static auto& kept = *new std::deque<DynamicLibrary>;  // never destroyed
    const std::lock_guard lock(mutex);
    return kept.emplace_back(std::move(library));
}

std::vector<std::string> rocm_roots() {
    std::vector<std::string> roots;
    for (const char* variable : {"ROCM_PATH", "HIP_PATH"})
        if (const char* folder = std::getenv(variable); folder && *folder)
            roots.emplace_back(folder);
    roots.emplace_back("/opt/rocm");
    std::vector<std::string> versions;
    for (const std::string& name : names_in("/opt"))
        if (name.starts_with("rocm-")) versions.push_back("/opt/" + name);
    // By version, not by letter: 10.0 comes after 9.9.
    std::sort(versions.begin(), versions.end(), [](const std::string& a, const std::string& b) {
        return ::strverscmp(a.c_str(), b.c_str()) > 0;
    });
    roots.insert(roots.end(), versions.begin(), versions.end());
    return roots;
}

std::vector<std::string> rocm_library_names(std::span<const std::string> files) {
    std::vector<std::string> names;
    std::error_code error;
    for (const std::string& root : rocm_roots())
        for (const std::string& file : files)
            if (const fs::path path = fs::path(root) / "lib" / file; fs::exists(path, error))
                names.push_back(path.string());
    names.insert(names.end(), files.begin(), files.end());
    return names;
}

}  // namespace cleave
