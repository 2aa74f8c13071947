// SPDX-License-Identifier: Apache-2.0
// In: a Machine. Out: its devices in groups whose inner links are fast, and the order that lists
// group after group: stages take contiguous ranges of it. METIS proposes the groups on the
// link-bandwidth graph, one proposal for each drop in bandwidth; the links decide whether they
// are used. Without METIS the user's order is kept.
#pragma once

#include <vector>

#include "planner/machine/machine.h"

namespace cleave::planner {

struct DeviceGroups {
    std::vector<std::vector<DeviceId>>
        groups;                   // members in the user's order, groups by their first member
    int64_t inner_bandwidth = 0;  // the slowest link inside a group, bytes/s
    int64_t outer_bandwidth = 0;  // the fastest between groups
};

// Groups by METIS into `count` parts of (nearly) equal speed.
DeviceGroups group_devices(const Machine& machine, int count, int64_t seed);

// How many groups the links suggest: where bandwidth drops by half or more; 1 when the links are
// alike.
int natural_group_count(const Machine& machine);

// Links at least as fast as `bandwidth` join groups of up to `largest_group` devices. Levels from
// fast to slow; `smallest_latency_ns` is that of any link not faster than the level.
struct LinkLevel {
    int64_t bandwidth = 0;
    int largest_group = 1;
    int num_groups = 0;
    int64_t smallest_latency_ns = 0;
};
std::vector<LinkLevel> link_levels(const Machine& machine);

// Group after group.
std::vector<DeviceId> flatten(const DeviceGroups& groups);

std::vector<DeviceId> user_order(const Machine& machine);

}  // namespace cleave::planner
