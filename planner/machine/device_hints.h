// SPDX-License-Identifier: Apache-2.0
// What somebody means who writes a device as other tools do, or as its box says.
#pragma once

#include <string>

namespace cleave::planner {

// An entry of a device list that can be meant by `entry`: "sim:h100[0-3]" for "4xh100", "cuda[0]"
// for "cuda:0", "host" for "cpu"; empty where nothing is near.
std::string likely_device(const std::string& entry);

}  // namespace cleave::planner
