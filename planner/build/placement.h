// SPDX-License-Identifier: Apache-2.0
// What the search decides and the passes of build/ make explicit: stages in order, the devices of
// each, and how they share its work.
#pragma once

#include <vector>

#include "planner/analysis/sharding.h"
#include "planner/machine/machine.h"

namespace cleave::planner {

struct StageChoice {
    std::vector<DeviceId> devices;
    int begin = 0, end = 0;  // groups [begin, end)
    StageShares shares;      // one weight per device
};

struct Placement {
    std::vector<StageChoice> stages;
};

}  // namespace cleave::planner
