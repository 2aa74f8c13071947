// SPDX-License-Identifier: Apache-2.0
// What the operating system says about this host. Rates are estimates from the CPU's features; a
// machine file measured by `cleave devices --measure` replaces them.
#include "planner/machine/host_facts.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace cleave::planner {
namespace {

// All of it, not what is free now: the same machine must give the same plan.
int64_t physical_memory() {
    return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

// Memory a control group leaves us, or INT64_MAX.
int64_t cgroup_limit() {
    std::ifstream file("/sys/fs/cgroup/memory.max");
    int64_t limit = 0;
    return file >> limit && limit > 0 ? limit : INT64_MAX;
}

int cores_of_this_process() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
    return static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

}  // namespace

HostFacts read_host_facts() {
    constexpr int64_t kClock = 2'500'000'000;             // an ordinary server's, under vector load
    constexpr int64_t kBandwidthOfCore = 10'000'000'000;  // one core's stream of reads
    HostFacts facts;
    facts.num_cores = cores_of_this_process();
    facts.memory_bytes = std::min(physical_memory(), cgroup_limit()) / 10 * 9;
    const bool avx512 = __builtin_cpu_supports("avx512f"), avx2 = __builtin_cpu_supports("avx2");
    int64_t lanes = avx512 ? 16 : avx2 ? 8 : 4;
    facts.flops_f32 = facts.num_cores * kClock * lanes * 2 * 2;  // two multiply-add pipes
    facts.memory_bandwidth = kBandwidthOfCore * std::min(facts.num_cores, 16);
    facts.arch = avx512 ? "x86-64-v4" : avx2 ? "x86-64-v3" : "x86-64";
    return facts;
}

}  // namespace cleave::planner
