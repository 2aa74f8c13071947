// SPDX-License-Identifier: Apache-2.0
// Which of a machine's devices a plan uses.
#pragma once

#include <vector>

#include "planner/plan/plan.h"

namespace cleave::planner {

// Devices with a stage, by number; the machine's others are unused.
std::vector<DeviceId> used_devices(const Plan& plan);
std::vector<DeviceId> unused_devices(const Plan& plan);

}  // namespace cleave::planner
