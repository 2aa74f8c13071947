// SPDX-License-Identifier: Apache-2.0
// What this machine's cores reach in loops that do nothing else: reading memory, and products of
// f32, bf16 and int8 on the units that there are. In: threads. Out: the best of several runs.
#pragma once

#include <cstddef>

namespace cleave::bench {

struct CpuLimits {
    double read = 0;                     // bytes/s
    double f32 = 0, bf16 = 0, int8 = 0;  // operations/s; 0: the CPU has no such unit
    const char *f32_unit = "", *bf16_unit = "", *int8_unit = "";
};

// Sums over `bytes` of memory, split over the threads.
double read_bandwidth(int threads, size_t bytes);
CpuLimits measure_limits(int threads, size_t bytes);

}  // namespace cleave::bench
