// SPDX-License-Identifier: Apache-2.0
// `tools/bench cpu --many`: 4 to 16 sequences on this host as one device, as replicas and as groups
// in flight, beside what the planner predicts for each.
#pragma once

#include <string>

#include "planner/plan/workload.h"
#include "runtime/base/dtype.h"

namespace cleave::bench {

// Prints one table. Rounds of all ways and of the host's measurement take turns, so that both see
// what the machine does meanwhile. UserError for an unknown shape.
void many_sequences(const std::string& shape, DType dtype,
                    std::optional<planner::ComputeMode> compute);

}  // namespace cleave::bench
