// SPDX-License-Identifier: Apache-2.0
// What a host's devices rest on: cores, memory, rates. Read from the operating system, or measured
// by `cleave devices --measure`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/machine/machine.h"

namespace cleave::planner {

// Rates that `cleave devices --measure` found; none when `rates.bandwidth` is 0.
struct HostCalibration {
    MeasuredRates rates;
    int64_t transfer_bandwidth = 0, transfer_latency_ns = 0;  // from one host device to another
    int64_t exchange_bandwidth = 0, exchange_latency_ns = 0;  // an all-reduce of two
};

// Cores and memory that are near each other.
struct NumaNode {
    int num_cores = 0;  // those that the process may use
    int64_t memory_bytes = 0;
};

// The host that all `host` devices of this process share.
struct HostFacts {
    int num_cores = 1;
    int64_t memory_bytes = 0;
    int64_t memory_bandwidth = 0;  // bytes/s of all cores together
    int64_t flops_f32 = 0;         // of all cores together
    std::string arch;              // JIT target name
    HostCalibration calibration;
    // Those with cores, whose order numbers host[N]@numa. Empty: nobody looked (runtime's
    // read_numa_nodes does).
    std::vector<NumaNode> numa_nodes{};
};

// Of the machine the process runs on, from the operating system. Rates are estimates, without a
// calibration.
HostFacts read_host_facts();

}  // namespace cleave::planner
