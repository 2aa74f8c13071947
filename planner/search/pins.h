// SPDX-License-Identifier: Apache-2.0
// In: the user's pins. Out: the device each unit of the pipeline must have in its stage, and the
// device orders worth searching for that. A pin puts its operators into a stage that has the
// device; tensor parallelism may add others to it (`--tp 1`: none). Operators pinned to different
// devices are in different stages; pins may return to a device, which then has several stages.
// What no pipeline can meet is a UserError that names the pins, what crosses between them, and the
// ways out with their cost. The dynamic programme takes pins as it takes memory: a hard cap, exact
// for an order of the devices. The verifier has a rule of its own for them (`pin`).
#pragma once

#include <vector>

#include "planner/analysis/analysis.h"
#include "planner/build/placement.h"

namespace cleave::planner {

// By unit; invalid where it is free. Empty without pins.
using PinnedUnits = std::vector<DeviceId>;

// `pipeline_stages`: of a forced shape, 0 where it is open.
PinnedUnits resolve_pins(const Analysis& analysis, const Machine& machine, const Workload& workload,
                         const std::vector<Pin>& pins, int pipeline_stages);

// UserError where a shape of so many stages (0: open) cannot meet the pins.
void check_stage_count(const PinnedUnits& pins, int pipeline_stages);

// The same pins with the machine's own names of devices; UserError for one that is not declared.
std::vector<Pin> canonical_pins(const Machine& machine, const std::vector<Pin>& pins);

// Whether a stage of `devices` may hold units [begin, end).
bool meets_pins(const PinnedUnits& pins, const std::vector<DeviceId>& devices, int begin, int end);
bool meets_pins(const Analysis& analysis, const PinnedUnits& pins, const Placement& placement);

// Whether a device is pinned again behind another one's pins.
bool pins_return(const PinnedUnits& pins);

// `order` rearranged so that pinned devices follow each other as their units do; the others keep
// their order and are shared out among the places between. All ways where these are few, a choice
// of them otherwise; `order` alone without pins. A device to which the pins return is in it
// again. `tensor_parallel`: of a forced shape, or 0.
std::vector<std::vector<DeviceId>> orders_for(const PinnedUnits& pins,
                                              const std::vector<DeviceId>& order,
                                              int tensor_parallel);

}  // namespace cleave::planner
