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
    int per_node = 0;      // sim:h100[0-31]/4: devices of a server; 0: the catalogue's
    int logical = -1;      // cuda[0]/2: the logical device on one card
    bool numa = false;     // host[N]@numa: NUMA node N; host@numa: each, and index is -1
    std::string machine;   // behind the @: the host that has it; empty: not said
    std::string text;      // canonical name, "host[0]@b"
};

// "cuda[0],hip[0-7],host[0]"; "sim:h100[0-7]@a"; "cuda[0]/0-3". UserError names the entry for
// unknown kinds, bad ranges, duplicates, and hosts that are no names; for models that the catalogue
// lacks unless `any_model`: a machine file may have them.
std::vector<DeviceSpec> parse_devices(const std::string& text, bool any_model = false);

// The entries of a list as they are written: its commas outside brackets part them. UserError for
// brackets that do not match.
std::vector<std::string> device_entries(const std::string& text);

// The devices of a run on `hosts`, of which rank r is hosts[r]: each with one of them for its
// machine. @HOST is a name or the number of a rank; entries without it hold on every host, those of
// one host side by side. UserError for an absent host, for a host without devices, and for a device
// that two entries name.
std::vector<DeviceSpec> devices_on_hosts(const std::vector<DeviceSpec>& specs,
                                         const std::vector<std::string>& hosts);

}  // namespace cleave::planner
