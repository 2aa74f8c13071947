// SPDX-License-Identifier: Apache-2.0
// Small machines for tests: hosts whose rates follow from their cores, and lists of devices on
// them.
#pragma once

#include <string>

#include "planner/machine/build_machine.h"

namespace cleave::test {

// 10 GB/s and 50 GFLOP/s a core.
inline planner::HostFacts small_host(int cores = 4, int64_t gibibytes = 8) {
    return {cores, gibibytes << 30, cores * 10'000'000'000, cores * 50'000'000'000, "x86-64-v3",
            {}};
}

// `devices` as `--devices` has them.
inline planner::Machine machine_of(const std::string& devices,
                                   const planner::HostFacts& host = small_host()) {
    return planner::build_machine(planner::parse_devices(devices), host);
}

}  // namespace cleave::test
