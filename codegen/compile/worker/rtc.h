// SPDX-License-Identifier: Apache-2.0
// NVRTC and hipRTC through the handful of functions that both have under the same names, resolved
// at run time: no version's headers are needed and none is assumed. Only in the compile worker.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/dynamic_library.h"

namespace cleave::codegen {

struct RtcResult {
    bool ok = false;
    std::string log;
    std::string object;  // a cubin or a code object
    std::string ptx;     // NVRTC, where it gives it
};

class Rtc {
public:
    // `kind`: "nvrtc" or "hiprtc". The first of `names` that loads and has the functions; `reason`
    // says why none did.
    static Rtc open(const std::string& kind, std::span<const std::string> names);

    const std::string& reason() const { return reason_; }
    const std::string& library() const { return library_->name(); }
    std::string path() const;     // of its file, where the loader says
    std::string version() const;  // "13.0"
    std::string archs() const;    // "sm_75 sm_80 ...": where the library can tell

    // `name` is the source's file name in diagnostics.
    RtcResult compile(const std::string& name, const std::string& source,
                      const std::vector<std::string>& options) const;

private:
    using Program = void*;
    using Status = int;  // both libraries' enumerations; 0 is success
    using SizeOf = Status(Program, size_t*);
    using TextOf = Status(Program, char*);

    bool resolve(const std::string& kind);
    std::string text_of(Program program, SizeOf* size_of, TextOf* text_of) const;

    std::optional<DynamicLibrary> library_;
    std::vector<DynamicLibrary> companions_;
    std::string reason_;
    Status (*version_)(int*, int*) = nullptr;
    const char* (*error_)(Status) = nullptr;
    Status (*create_)(Program*, const char*, const char*, int, const char**,
                      const char**) = nullptr;
    Status (*compile_)(Program, int, const char**) = nullptr;
    Status (*destroy_)(Program*) = nullptr;
    SizeOf *log_size_ = nullptr, *object_size_ = nullptr, *ptx_size_ = nullptr;
    TextOf *log_ = nullptr, *object_ = nullptr, *ptx_ = nullptr;
    Status (*arch_count_)(int*) = nullptr;
    Status (*archs_)(int*) = nullptr;
};

}  // namespace cleave::codegen
