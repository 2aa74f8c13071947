// SPDX-License-Identifier: Apache-2.0
// The placements that other tools would use, for comparison: no search, a rule each. In: an
// analysed Graph, a Machine, a Workload with its KV dtype settled. Out: placements that
// planner/build/build_plan.h builds and scores like any other; what `tools/bench planner` and the
// tests hold the search against. Devices are taken in the user's order.
#pragma once

#include <string>
#include <vector>

#include "planner/analysis/analysis.h"
#include "planner/build/placement.h"

namespace cleave::planner {

struct Baseline {
    std::string rule;   // "equal layers", "megatron", "greedy fill", "uniform grid"
    std::string shape;  // "tp 8 x pp 2"
    Placement placement;
};

// - equal layers: a stage a device, as many layers each; embedding with the first, lm_head with the
// last.
// - megatron: tensor parallelism inside a node (the devices joined by the fastest links), a stage a
// node of equal
//   layers (Narayanan et al., SC 2021, takeaways 1 and 2).
// - greedy fill: devices take whole layers in order until their memory is full.
// - uniform grid: every tp x pp that uses a divisor of the devices, equal layers a stage; one entry
// each. A rule that says nothing on this machine (operators that cannot be split, a model that does
// not fit) has no entry.
std::vector<Baseline> baselines(const Analysis& analysis, const Machine& machine,
                                const Workload& workload);

// Stages of `tensor_parallel` devices each, from the first device on, with as many layers each as
// possible.
Placement equal_layers(const Analysis& analysis, int tensor_parallel, int pipeline_stages);

}  // namespace cleave::planner
