// SPDX-License-Identifier: Apache-2.0
// Pins that no pipeline can meet together: two devices for one unit, or a return to a device that
// an earlier part has. The UserError names the values that would cross, who makes and reads each on
// which device, and the ways out with what each costs: bytes that are elsewhere or twice, bytes per
// token over which link.
#pragma once

#include <string>
#include <vector>

#include "planner/analysis/analysis.h"

namespace cleave::planner {

struct ResolvedPin {
    Pin pin;
    DeviceId device;
    int first = 0, last = 0;  // units, both included
};

std::string pin_text(const Pin& pin);  // --pin 'layers.0-3=host[0]'

// Returns when the pins do not contradict each other; UserError otherwise.
void refuse_conflicts(const Analysis& analysis, const Machine& machine, const Workload& workload,
                      const std::vector<ResolvedPin>& pins);

}  // namespace cleave::planner
