// SPDX-License-Identifier: Apache-2.0
// In: a Plan with steps. Out: each launch's Tile and ActivationPath, by arithmetic on the device's
// limits, without a compiler; what a launch claims is within the limits, where any tile is. Host:
// `rows` output features (or query heads) and `tokens` are one work item, `shared_bytes` the
// scratch of one thread. GPU: planner/tiles/gpu.h.
#pragma once

#include <optional>

#include "planner/tiles/gpu.h"

namespace cleave::planner {

void choose_tiles(Plan& plan);

// Whether the blocks and the grid of each GPU have room for its launches with these tiles; else a
// UserError that names operator, device, need and limit.
bool fits_limits(const Plan& plan);
void check_launch_limits(const Plan& plan);

// Of a GPU launch: whether a limit took a larger tile from it. Nothing for hosts.
std::optional<ShrunkTile> shrunk_tile(const Plan& plan, const Phase& phase, const Compute& compute);

// Device memory that a GPU launch with its tile works in, beside its operands; 0 for most, and for
// hosts.
int64_t scratch_bytes(const Plan& plan, const Phase& phase, const Compute& compute);

// Threads of a device among the cores of its machine (core_shares); 0 where it is no host.
int64_t host_threads(const Plan& plan, DeviceId device);

}  // namespace cleave::planner
