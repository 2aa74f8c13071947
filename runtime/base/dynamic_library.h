// SPDX-License-Identifier: Apache-2.0
// A shared library opened at run time. `open_first` tries names in order; when none opens, the
// reason lists every name tried with the loader's message. The handle closes when the object goes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/supports.h"

namespace cleave {

class DynamicLibrary {
public:
    // kIsolated: the library takes symbols from itself and what it links before those of the
    // process, for one that brings its own copy of a library that the process has in another
    // version. kGlobal: libraries that are opened later find its symbols, as Open MPI's parts must.
    enum class Scope : uint8_t { kShared, kIsolated, kGlobal };

    // The first of `names` that loads, or nothing with the reason in `why`.
    static std::optional<DynamicLibrary> open_first(std::span<const std::string> names,
                                                    std::string* why, Scope scope = Scope::kShared);

    ~DynamicLibrary();
    DynamicLibrary(DynamicLibrary&& other) noexcept;
    DynamicLibrary& operator=(DynamicLibrary&& other) noexcept;
    DynamicLibrary(const DynamicLibrary&) = delete;
    DynamicLibrary& operator=(const DynamicLibrary&) = delete;

    void* symbol(const char* name) const;  // nullptr when absent
    template <class Function>
    Function* function(const char* name) const {
        return reinterpret_cast<Function*>(symbol(name));
    }
    const std::string& name() const { return name_; }

private:
    DynamicLibrary(void* handle, std::string name) : handle_(handle), name_(std::move(name)) {}
    void* handle_ = nullptr;
    std::string name_;
};

// The library stays in the process until it ends: one whose threads or exit handlers run on after
// its last user.
DynamicLibrary& kept_open(DynamicLibrary library);

// Where a library of Cleave's own may lie, in the order to try: ../lib beside the executable (or
// beside the shared library that holds this code), its own folder, and the loader's own search.
std::vector<std::string> library_names(const std::string& file);

// Where ROCm may be installed: ROCM_PATH, HIP_PATH, /opt/rocm, /opt/rocm-* from the newest down.
std::vector<std::string> rocm_roots();

// Where a library of ROCm may lie: under those roots each of `files` that is there (the newest
// first), then the names alone for the loader, which may find a distribution's older one.
std::vector<std::string> rocm_library_names(std::span<const std::string> files);

}  // namespace cleave
