// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/dynamic_library.h"

#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>

namespace cleave {

std::optional<DynamicLibrary> DynamicLibrary::open_first(std::span<const std::string> names,
                                                         std::string* why) {
    std::string reasons;
    for (const std::string& name : names) {
        if (void* handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return DynamicLibrary(handle, name);
        const char* message = ::dlerror();
        reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", message ? message : name);
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

}  // namespace cleave
