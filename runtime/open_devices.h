// SPDX-License-Identifier: Apache-2.0
// The devices of a plan's machine, opened by the drivers of this build, in the plan's order.
#pragma once

#include <memory>
#include <vector>

#include "planner/machine.h"
#include "runtime/device.h"

namespace cleave::runtime {

struct OpenOptions {
    int threads = 0;  // of all host devices together; 0: one per core. Each device has at least one
    bool poison = false;
};

// UserError naming the device whose kind this build cannot drive.
std::vector<std::unique_ptr<Device>> open_devices(const planner::Machine& machine, const OpenOptions& options);

// Whether `machine`'s host devices have no more threads than the process has cores, so that a brief poll before
// blocking takes nobody's time.
bool threads_fit_cores(const planner::Machine& machine, int threads);

}  // namespace cleave::runtime
