// SPDX-License-Identifier: Apache-2.0
// Where NVRTC and hipRTC are looked for: names to try, in order. No version is assumed: names
// without one, then any versioned name in the same folder, then those of known major versions.
#pragma once

#include <string>
#include <vector>

namespace cleave::codegen {

inline constexpr const char* kNvrtcVariable = "CLEAVE_NVRTC";
inline constexpr const char* kHiprtcVariable = "CLEAVE_HIPRTC";

// `given`: a library or a folder with it, and then nothing else; empty: the usual places.
std::vector<std::string> nvrtc_names(const std::string& given);
std::vector<std::string> hiprtc_names();
// Those that the variable's value stands for; none where it is not set. `stem`: "libnvrtc".
std::vector<std::string> names_in_variable(const char* variable, const std::string& stem);

}  // namespace cleave::codegen
