// SPDX-License-Identifier: Apache-2.0
// The devices of a plan, opened by the drivers of this build, in its order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "planner/plan/plan.h"
#include "runtime/cards/drivers.h"
#include "runtime/device/device.h"
#include "runtime/hosts/device_ranks.h"

namespace cleave::runtime {

struct OpenOptions {
    int threads = 0;  // that may run at once on the host's cores; 0: one per core
    bool poison = false;
    int settle_seconds = 10;            // that a GPU which is given up may take to end its work
    std::optional<uint64_t> simt_seed;  // of the order of threads on simt devices; none: by index
    // Which devices are this process's; null: all must be of this machine, or are refused.
    const DeviceRanks* ranks = nullptr;
};

// UserError naming the device whose kind this build cannot drive. The host and simt devices of one
// pipeline stage share the threads (each has at least one); stages work one after the other on a
// token, so each stage has all of them. Null for devices of other ranks.
std::vector<std::unique_ptr<Device>> open_devices(const planner::Plan& plan, Drivers& drivers,
                                                  const OpenOptions& options);

// Threads of each device of the plan, by that rule (planner::core_shares); 0 for devices that do
// not compute on the host's cores.
std::vector<int> threads_of_devices(const planner::Plan& plan, int threads);

// Whether the threads of every stage have a core each, so that a brief poll before blocking takes
// nobody's time.
bool threads_fit_cores(const planner::Plan& plan, int threads);

}  // namespace cleave::runtime
