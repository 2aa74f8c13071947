// SPDX-License-Identifier: Apache-2.0
// In: an analysed Graph, a Machine, a Workload, options. Out: placements worth building, best
// estimate first: the dynamic programme's for every shape the options leave open, over the user's
// device order and METIS's, each with its balanced variants; the uniform grid; equal units a stage;
// METIS's own cut; for throughput, virtual stages (planner/search/virtual_stages.h). The event
// simulation then chooses among them (planner/planner.cpp).
#pragma once

#include <string>
#include <vector>

#include "planner/analysis/placement.h"
#include "planner/search/check_options.h"
#include "planner/search/stage_search.h"

namespace cleave::planner {

enum class Source : uint8_t { kProgramme, kEqualUnits, kMetisCut, kInterleaved };

struct Proposal {
    Placement placement;
    Source source = Source::kProgramme;
    bool metis_order = false;
    int devices_used = 0;
    int64_t estimate_ns = 0;   // of the objective, per generated token
    int64_t largest_ns = 0;    // of the busiest stage, per generated token
    bool whole_layers = true;  // no layer is cut in two
    std::string shape;         // "tp 2 x pp 2"
};

// The busiest stage, as what near-equal proposals are told apart by; a cut layer must gain a
// twentieth.
int64_t balance_of(const Proposal& proposal);

struct Proposals {
    std::vector<Proposal> found;          // by estimate
    std::vector<std::string> impossible;  // shapes that do not fit in memory
    int64_t metis_us = 0;
    std::string metis_failure;  // what METIS gave up with, if it did
};

// `slack`: parts per thousand of memory kept free (planner/search/cost_tables.h).
Proposals propose(const Analysis& analysis, const Machine& machine, const Workload& workload,
                  const PlanOptions& options, const Shape& shape, int64_t slack);

// "tp 2 x pp 2", "pp 2 of tp 3, 2" for stages of different width; "tp 1 x pp 2 in 5 virtual stages"
// where devices return.
std::string shape_name(const Placement& placement);

}  // namespace cleave::planner
