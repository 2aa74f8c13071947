// SPDX-License-Identifier: Apache-2.0
// Headings of options in a command's help, in the order in which they are shown. Options of
// kForExperts are in --help-all alone.
#pragma once

#include <array>

namespace cleave::tools {

inline constexpr const char* kTextGroup = "Prompt and text";
inline constexpr const char* kServerGroup = "Server";
inline constexpr const char* kPlanGroup = "Devices and plan";
inline constexpr const char* kWorkloadGroup = "Workload and types";
inline constexpr const char* kForExperts = "For experts";
inline constexpr const char* kOtherGroup = "Options";  // CLI11's own, where none is given

inline constexpr std::array kOptionGroups{kTextGroup,     kServerGroup, kPlanGroup,
                                          kWorkloadGroup, kOtherGroup,  kForExperts};

}  // namespace cleave::tools
