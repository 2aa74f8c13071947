// SPDX-License-Identifier: Apache-2.0
#include "codegen/compile/worker/rtc.h"

#include <filesystem>

#include <dlfcn.h>
#include <fmt/format.h>

#include "runtime/base/folder.h"

namespace cleave::codegen {

namespace {

template <class Function>
bool find(const DynamicLibrary& library, const std::string& name, Function*& function) {
    function = reinterpret_cast<Function*>(library.symbol(name.c_str()));
    return function != nullptr;
}

// NVRTC opens libnvrtc-builtins.so.VERSION by its bare name at its first compilation. PyPI's
// package lies where no loader looks, so the one beside it is opened first, and found by its name
// then.
std::vector<DynamicLibrary> open_builtins_beside(const std::string& library) {
    namespace fs = std::filesystem;
    std::vector<DynamicLibrary> opened;
    if (library.find('/') == std::string::npos) return opened;
    const fs::path folder = fs::path(library).parent_path();
    for (const std::string& name : names_in(folder)) {
        if (!name.starts_with("libnvrtc-builtins.so")) continue;
        std::string why;
        const std::string path = folder / name;
        if (auto builtins = DynamicLibrary::open_first(std::span(&path, 1), &why))
            opened.push_back(std::move(*builtins));
    }
    return opened;
}

}  // namespace

// The names of functions: nvrtcCompileProgram, hiprtcCompileProgram; only the object's differ
// (CUBIN, Code).
bool Rtc::resolve(const std::string& kind) {
    const DynamicLibrary& l = *library_;
    const std::string object = kind == "nvrtc" ? "GetCUBIN" : "GetCode";
    if (kind == "nvrtc") {  // both optional
        find(l, "nvrtcGetPTXSize", ptx_size_);
        find(l, "nvrtcGetPTX", ptx_);
        find(l, "nvrtcGetNumSupportedArchs", arch_count_);
        find(l, "nvrtcGetSupportedArchs", archs_);
    }
    return find(l, kind + "Version", version_) && find(l, kind + "GetErrorString", error_) &&
           find(l, kind + "CreateProgram", create_) && find(l, kind + "CompileProgram", compile_) &&
           find(l, kind + "DestroyProgram", destroy_) &&
           find(l, kind + "GetProgramLogSize", log_size_) &&
           find(l, kind + "GetProgramLog", log_) && find(l, kind + object + "Size", object_size_) &&
           find(l, kind + object, object_);
}

Rtc Rtc::open(const std::string& kind, std::span<const std::string> names) {
    Rtc rtc;
    std::string reasons;
    for (const std::string& name : names) {
        std::string why;
        rtc.library_ = DynamicLibrary::open_first(std::span(&name, 1), &why);
        if (rtc.library_ && rtc.resolve(kind)) {
            if (kind == "nvrtc") rtc.companions_ = open_builtins_beside(name);
            return rtc;
        }
        if (rtc.library_) why.assign(name).append(": it lacks functions of ").append(kind);
        reasons.append(reasons.empty() ? "" : "; ").append(why);
    }
    rtc.reason_ = reasons.empty() ? "no name to try" : reasons;
    return rtc;
}

std::string Rtc::path() const {
    Dl_info info{};
    const bool known = ::dladdr(reinterpret_cast<const void*>(version_), &info) && info.dli_fname;
    return known ? info.dli_fname : "";
}

std::string Rtc::version() const {
    int major = 0, minor = 0;
    version_(&major, &minor);
    return fmt::format("{}.{}", major, minor);
}

std::string Rtc::archs() const {
    int count = 0;
    if (!arch_count_ || !archs_ || arch_count_(&count) != 0 || count <= 0) return "";
    std::vector<int> numbers(static_cast<size_t>(count));
    if (archs_(numbers.data()) != 0) return "";
    std::string text;
    for (int number : numbers) text += fmt::format("{}sm_{}", text.empty() ? "" : " ", number);
    return text;
}

std::string Rtc::text_of(Program program, SizeOf* size_of, TextOf* text_of) const {
    size_t size = 0;
    if (!size_of || !text_of || size_of(program, &size) != 0 || size == 0) return "";
    std::string text(size, '\0');
    if (text_of(program, text.data()) != 0) return "";
    return text;
}

RtcResult Rtc::compile(const std::string& name, const std::string& source,
                       const std::vector<std::string>& options) const {
    RtcResult result;
    Program program = nullptr;
    Status status = create_(&program, source.c_str(), name.c_str(), 0, nullptr, nullptr);
    if (status != 0) {
        result.log = fmt::format("{}: {}", name, error_(status));
        return result;
    }
    std::vector<const char*> pointers;
    for (const std::string& option : options) pointers.push_back(option.c_str());
    status = compile_(program, static_cast<int>(pointers.size()), pointers.data());
    result.log = text_of(program, log_size_, log_);
    while (!result.log.empty() && result.log.back() == '\0') result.log.pop_back();
    if (status == 0) {
        result.object = text_of(program, object_size_, object_);
        result.ptx = text_of(program, ptx_size_, ptx_);
        result.ok = !result.object.empty();
        if (!result.ok) result.log += "\nthe library gave no object for this arch";
    } else {
        result.log += fmt::format("\n{}", error_(status));
    }
    destroy_(&program);
    return result;
}

}  // namespace cleave::codegen
