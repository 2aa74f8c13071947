// SPDX-License-Identifier: Apache-2.0
// Every variable of the environment by which a user steers this library, in one list. The drivers'
// own variables (CUDA_VISIBLE_DEVICES) are in planner/machine/vendor.h.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace cleave {

struct EnvironmentVariable {
    std::string_view name;     // "CLEAVE_GPU_GRAPHS"
    std::string_view purpose;  // what its value does
};
std::span<const EnvironmentVariable> environment_variables();

// Its value; empty: not set. InternalError for a name that is not in the list.
std::string environment(std::string_view name);

}  // namespace cleave
