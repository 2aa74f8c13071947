// SPDX-License-Identifier: Apache-2.0
// In: the text of `--devices`, "cuda[0],hip[0-7],host[0]". Out: one DeviceSpec a device, in the
// user's order, each device once.
#pragma once

#include <string>
#include <vector>

#include "planner/machine/machine.h"

namespace cleave::planner {

// One entry of the list, expanded: "host[0-1]" is two.
struct DeviceSpec {
    DeviceKind kind = DeviceKind::kHost;
    std::string arch;  // after the colon: "gfx90a", "h100"; empty for none
    int index = 0;
    std::string identity;  // UUID or PCI address when so chosen; then index is -1
    int logical = -1;      // cuda[0]/2: the logical device on one card
    std::string text;      // canonical name
};

// "cuda[0],hip[0-7],host[0]"; "sim:h100[0-7]"; "cuda[0]/0-3". UserError names the entry for unknown
// kinds, bad ranges, duplicates, and the reserved suffix @HOST.
std::vector<DeviceSpec> parse_devices(const std::string& text);

}  // namespace cleave::planner
