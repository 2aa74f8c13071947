// SPDX-License-Identifier: Apache-2.0
// The second mode, for throughput: virtual stages. The groups of devices of a contiguous solution
// stay, and each may take several runs of units: where units are few or unequal, or memory is, that
// balances better than one run each, for the price of more transfers. In: tables, a solution to
// start from. Out: a solution whose groups return, or nothing where none beats it. Simulated
// annealing on the busiest group's time; deterministic for a seed.
#pragma once

#include <optional>

#include "planner/search/cost_tables.h"
#include "planner/search/pins.h"
#include "planner/search/stage_search.h"

namespace cleave::planner {

std::optional<StageSolution> interleave(CostTables& tables, const StageSolution& start,
                                        const PinnedUnits& pins, int64_t seed);

}  // namespace cleave::planner
