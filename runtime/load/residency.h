// SPDX-License-Identifier: Apache-2.0
// The runtime's own proof, independent of the verifier, that no step reads what its device was
// never given. Each phase's step list is replayed once, device by device, before anything loads.
#pragma once

#include "planner/plan/plan.h"

namespace cleave::runtime {

// UserError naming the phase, step, value and device of the first operand that no earlier step put
// on the device that reads it, or of the first operand, weight, table, cache or buffer that is on
// another device.
void check_presence(const planner::Plan& plan);

}  // namespace cleave::runtime
