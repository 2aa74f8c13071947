// SPDX-License-Identifier: Apache-2.0
// What a plan was asked for, as make_plan takes it: what a question changes before it plans again;
// and what comes of that, a plan or the reason why there is none.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/plan/plan.h"
#include "planner/search/refuse.h"

namespace cleave::planner {

struct Case {
    Graph graph;
    Machine machine;  // all devices, those of all replicas among them
    Workload workload;
    PlanOptions options;
};

// Of a plan alone. UserError for a plan with replicas of devices that are not the catalogue's: what
// links them is not in it.
Case case_of(const Plan& plan);

// Of one replica of a plan, to be planned again as it is, for its own users.
Case replica_case(const Plan& plan);
// Keeps the plan's shape, where a tensor-parallel width and a number of stages say it whole.
void keep_shape(const Plan& plan, PlanOptions& options);

// Empty, or why the model's positions allow no context so long.
std::string why_no_context(const Graph& graph, int64_t context);

struct Outcome {
    std::optional<Plan> plan;
    std::string refusal;           // why there is none: the rule, with `$names`; or what is lacking
    bool lacks_memory = false;     // the reason is memory
    std::vector<Deficit> devices;  // then: what each lacks
    std::vector<std::string> fixes;
    bool fits() const { return plan.has_value(); }
};
// Errors of the input other than UserError leave it.
Outcome outcome_of(const Case& asked);

// "lacks 3.20 GB on sim:a40[1]": of the device that lacks most.
std::string lacking(const std::vector<Deficit>& devices);

// The machine with further devices, given as `$devices` has them ("sim:h100[8]", "cuda[4-5]").
// Catalogue devices are as the catalogue has them, where all are. Elsewhere a new one is like the
// last of its kind, and linked as that one is. UserError for one that is there already, and for one
// of a kind of which the machine has none.
Machine with_devices(const Machine& machine, const std::string& list);
// Without these. UserError for one that is not there, and where none is left.
Machine without_devices(const Machine& machine, const std::string& list);
// Links of a kind "nvlink" so many times as fast: bandwidth, not latency. UserError for a kind that
// the machine lacks; it lists those that it has.
Machine with_links(Machine machine, const std::string& kind, double factor);

// The device with that name, or one of a list ("sim:h100[0]" is a list of one). UserError that
// lists the machine's.
DeviceId find_device(const Machine& machine, const std::string& name);

}  // namespace cleave::planner
