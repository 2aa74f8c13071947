// SPDX-License-Identifier: Apache-2.0
// A libnvrtc that compiles nothing and says so. Its version is its file's: libnvrtc.so.12 is
// NVRTC 12.4.
#include <dlfcn.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr int kSuccess = 0, kCompilation = 6, kMinor = 4;
constexpr const char kLog[] = "the imitation compiles nothing";

}  // namespace

extern "C" {

int nvrtcVersion(int* major, int* minor) {
    Dl_info info{};
    const std::string file =
        ::dladdr(reinterpret_cast<void*>(&nvrtcVersion), &info) ? info.dli_fname : "";
    const size_t at = file.rfind(".so.");
    *major = at == std::string::npos ? 0 : std::atoi(file.c_str() + at + 4);
    *minor = kMinor;
    return kSuccess;
}
const char* nvrtcGetErrorString(int code) {
    return code == kCompilation ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR";
}
int nvrtcCreateProgram(void** program, const char*, const char*, int, const char**, const char**) {
    static int one;
    *program = &one;
    return kSuccess;
}
int nvrtcCompileProgram(void*, int, const char**) { return kCompilation; }
int nvrtcDestroyProgram(void**) { return kSuccess; }
int nvrtcGetProgramLogSize(void*, size_t* size) {
    *size = sizeof kLog;
    return kSuccess;
}
int nvrtcGetProgramLog(void*, char* log) {
    std::memcpy(log, kLog, sizeof kLog);
    return kSuccess;
}
int nvrtcGetCUBINSize(void*, size_t* size) {
    *size = 0;
    return kSuccess;
}
int nvrtcGetCUBIN(void*, char*) { return kSuccess; }
}
