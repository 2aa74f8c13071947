// SPDX-License-Identifier: Apache-2.0
// Which of a machine's devices a plan uses, and which machine each of its replicas has.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "planner/plan/plan.h"

namespace cleave::planner {

// Devices with a stage, by number; the machine's others are unused.
std::vector<DeviceId> used_devices(const PlanBody& plan);
std::vector<DeviceId> unused_devices(const Plan& plan);

// `replica` from 0 to num_replicas() - 1. The same numbers name the devices of all that are alike.
const Machine& replica_machine(const Plan& plan, int64_t replica);

// Of all replicas, one after the other: used and unused ones.
std::vector<std::string> all_device_names(const Plan& plan);
// Of all replicas, those with a stage.
std::set<std::string> used_device_names(const Plan& plan);

}  // namespace cleave::planner
