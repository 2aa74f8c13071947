// SPDX-License-Identifier: Apache-2.0
// What a report's figures come from, so that those of a fake or of chosen libraries never pass as a
// card's.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace cleave::gpu_check {

// The environment's variables CLEAVE_*, by name: they choose drivers, compilers and ways to run.
nlohmann::ordered_json cleave_variables();

// Whether a driver's library, which this process has open under that name, is one of
// tests/runtime_fakes.
bool is_fake(const std::string& library);

}  // namespace cleave::gpu_check
