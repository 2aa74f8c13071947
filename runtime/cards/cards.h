// SPDX-License-Identifier: Apache-2.0
// The GPUs of this machine, as the vendors' drivers describe them. In: device lists as the user
// writes them (by index, UUID or PCI address). Out: descriptions for the planner, and the card
// behind a device of a plan.
#pragma once

#include <string>
#include <vector>

#include "planner/machine/build_machine.h"
#include "planner/machine/machine.h"
#include "runtime/cards/drivers.h"

namespace cleave::runtime {

// A reason that is not longer than it must be: the loader's own words matter only for a library
// that is there and does not load.
std::string short_reason(const std::string& reason);

// All GPUs that there are kernels for as a device list, "cuda[0,1],hip[0]"; empty where there are
// none. Where the kernel has no device of a vendor its library is not even opened.
struct FoundGpus {
    std::string list;
    std::string left_out;  // the others, for the user: a processor's own graphics, a card newer
                           // than this version
};
FoundGpus found_gpus(Drivers& drivers);

// What `cleave devices` says of a kind: its cards, and the variable that chose among them.
struct GpuListing {
    planner::DeviceKind kind = planner::DeviceKind::kNull;
    std::string library, version, reason;  // reason: why there is none
    std::string visible;                   // "CUDA_VISIBLE_DEVICES=2,3", all that are set
    std::vector<GpuFacts> cards;
    std::vector<std::string> errors;  // by card: why it does not say what it is; else empty
    // The library that knows the links of its cards, and why it is not there, with every name
    // tried; empty: it is, or there is no card.
    std::string links_library, no_links;
};
GpuListing list_gpus(Drivers& drivers, planner::DeviceKind kind);

// Descriptions from the drivers. Rates are the catalogue's where it knows the card by its name,
// else the driver's clocks times the widths of the architecture; reserved_bytes is what was taken
// of the memory when it was asked, and what a session takes beside the plan's bytes.
class RealGpus final : public planner::GpuDescriptions {
public:
    explicit RealGpus(Drivers& drivers) : drivers_(drivers) {}
    planner::DeviceInfo describe(const planner::DeviceSpec& spec) const override;
    planner::Link link(const planner::DeviceInfo& from,
                       const planner::DeviceInfo& to) const override;

private:
    Drivers& drivers_;
};

// The driver's ordinal of a device of a plan, by UUID or PCI address where the plan has one.
// UserError that names the plan's devices and this machine's when the card is not here or another
// one has its index.
int find_card(Drivers& drivers, const planner::DeviceInfo& device,
              const std::vector<planner::DeviceInfo>& of_plan);

}  // namespace cleave::runtime
