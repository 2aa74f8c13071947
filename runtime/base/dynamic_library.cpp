// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/dynamic_library.h"

#include <filesystem>
#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>

namespace cleave {

namespace {

namespace fs = std::filesystem;

#ifdef __SANITIZE_ADDRESS__
constexpr int kIsolate = 0;  // the sanitizer refuses RTLD_DEEPBIND, which would go past its malloc
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
    const int mode = RTLD_NOW | RTLD_LOCAL | (scope == Scope::kIsolated ? kIsolate : 0);
    std::string reasons;
    for (const std::string& name : names) {
        if (void* handle = ::dlopen(name.c_str(), mode)) return DynamicLibrary(handle, name);
        // The loader names the file that it misses, which may be one that `name` needs.
        const char* error = ::dlerror();
        const std::string message = error ? error : "it cannot be opened";
        reasons += reasons.empty() ? "" : "; ";
        reasons += message.starts_with(name + ":") ? message : name + ": " + message;
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

}  // namespace cleave
