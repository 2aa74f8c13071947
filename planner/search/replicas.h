// SPDX-License-Identifier: Apache-2.0
// In: a machine. Out: ways to divide it into parts that are alike, one for each replica of a model,
// so that a plan of the first part is a plan of all. A part has as many devices of each kind as any
// other, within a host where they are that few. What parts share (a host's memory, an adapter) is
// divided among them.
#pragma once

#include <string>
#include <vector>

#include "planner/plan/plan.h"

namespace cleave::planner {

struct Division {
    std::vector<Machine> parts;      // alike, at least one
    std::vector<std::string> spare;  // devices of no part
};

// Devices of one kind, in the user's order.
std::vector<std::vector<DeviceId>> kinds_of(const Machine& machine);

// The machines of those devices each; what several of them use has in each the share of one.
std::vector<Machine> parts_of(const Machine& machine,
                              const std::vector<std::vector<DeviceId>>& members);

// UserError for a number of replicas that the objective, the machine or the workload's users do not
// allow, or with pins, which name devices of one.
void check_replicas(const Machine& machine, const Workload& workload, const PlanOptions& options);

// By rising size of a part, the whole machine last, for as many users at most; of the number of
// replicas and for the shape that the options force. At least one.
std::vector<Division> divisions(const Machine& machine, const PlanOptions& options, int64_t users);

}  // namespace cleave::planner
