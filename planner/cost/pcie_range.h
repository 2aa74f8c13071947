// SPDX-License-Identifier: Apache-2.0
// PCIe cards of the catalogue are taken to have a link each; in a server they may share one. How
// much that matters: the plan's prediction were all cards of a node behind one x16 link
// (Wiring::pcie_group). The truth lies between the two.
#pragma once

#include "planner/analysis/analysis.h"
#include "planner/plan/plan.h"

namespace cleave::planner {

// Fills Prediction::one_pcie_link, with zeros where no transfer or sum of the plan would be slower:
// other links, one card, or groups that are given.
void predict_one_pcie_link(const Analysis& analysis, Plan& plan);

}  // namespace cleave::planner
