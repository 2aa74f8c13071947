// SPDX-License-Identifier: Apache-2.0
// A shared library opened at run time. `open_first` tries names in order; when none opens, the reason
// lists every name tried with the loader's message. The handle closes when the object goes.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/supports.h"

namespace cleave {

class DynamicLibrary {
public:
    // The first of `names` that loads, or nothing with the reason in `why`.
    static std::optional<DynamicLibrary> open_first(std::span<const std::string> names, std::string* why);

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

}  // namespace cleave
