// SPDX-License-Identifier: Apache-2.0
// Placements other tools would make: what the search's results are compared with, and what it never falls behind.
#pragma once

#include "planner/placement.h"

namespace cleave::planner {

// Equal numbers of units a stage, devices in order, equal shares.
Placement equal_units(const Analysis& analysis, const Machine& machine, int tensor_parallel, int pipeline_stages);

}  // namespace cleave::planner
