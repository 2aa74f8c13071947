// SPDX-License-Identifier: Apache-2.0
// In: an analysed Graph, a Machine, a Workload, options. Out: placements worth building, best
// estimate first; the event simulation then chooses among them (planner/planner.cpp).
//
// The units (half layers, the embedding, the head) are cut by a dynamic programme
// (planner/search/stage_search.h) for every shape that the options leave open. It runs over the
// user's device order and over METIS's groups. Caps on the largest stage, found by bisection, give
// the balanced variants. Uniform grids, equal units a stage and METIS's own stage cut compete with
// it. Estimates are compared by hardship (planner/search/simplicity.h); among plans within a
// quarter of a per cent the most balanced comes first.
//
// METIS groups devices where link bandwidth drops by half or more, and proposes stage cuts. The
// units of a Llama are a chain, and a chain has one order, so METIS cannot reorder it. `Plan::why`
// says what it brought, zero included.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "planner/analysis/analysis.h"
#include "planner/build/placement.h"
#include "planner/search/check_options.h"
#include "planner/search/stage_search.h"

namespace cleave::planner {

enum class Source : uint8_t { kProgramme, kEqualUnits, kMetisCut };

struct Proposal {
    Placement placement;
    Source source = Source::kProgramme;
    bool metis_order = false;
    int devices_used = 0;
    int64_t estimate_ns = 0;  // of the objective, per generated token
    int64_t largest_ns = 0;   // of the busiest stage, per generated token
    double hardship = 1;      // planner/search/simplicity.h
    std::string shape;        // "tp 2 x pp 2"
};

// What decides between near-equal proposals: the busiest stage, by hardship.
int64_t balance_of(const Proposal& proposal);

struct Proposals {
    std::vector<Proposal> found;          // by estimate
    std::vector<std::string> impossible;  // shapes that do not fit in memory
    int64_t metis_ns = 0;                 // time that METIS took
    std::string metis_failure;            // what METIS gave up with, if it did
};

// `slack`: parts per thousand of memory kept free (planner/search/cost_tables.h).
Proposals propose(const Analysis& analysis, const Machine& machine, const Workload& workload,
                  const PlanOptions& options, const Shape& shape, int64_t slack);

// The same of grids of equal stages alone, by weights, keys and values: some that the estimate of
// activations took for impossible.
Proposals propose_grids(const Analysis& analysis, const Machine& machine, const Workload& workload,
                        const PlanOptions& options, const Shape& shape);

// "tp 2 x pp 2", "pp 2 of tp 3, 2" for stages of different width; "tp 1 x pp 2 in 5 virtual stages"
// where devices return.
std::string shape_name(const Placement& placement);
std::string shape_name(std::span<const Stage> stages);

}  // namespace cleave::planner
