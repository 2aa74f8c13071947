// SPDX-License-Identifier: Apache-2.0
// In: a device list, the facts of this host, and the drivers' descriptions of real GPUs. Out: the
// Machine with every device and every link.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/machine/device_list.h"
#include "planner/machine/host_facts.h"
#include "planner/machine/machine.h"

namespace cleave::planner {

// Real GPUs, which only their drivers can describe (runtime/cards/cards.h).
class GpuDescriptions {
public:
    virtual ~GpuDescriptions() = default;
    // UserError for a device that is not there, with the ones that are.
    virtual DeviceInfo describe(const DeviceSpec& spec) const = 0;
    // Of two devices of one kind, on different cards; `from` and `to` are filled in by the caller.
    virtual Link link(const DeviceInfo& from, const DeviceInfo& to) const = 0;
};

// What joins catalogue devices, where their models leave it open.
struct Wiring {
    std::string fabric;  // their nodes (machine/fabric.h); empty: that of their models' servers
    // So many PCIe cards of a node share one x16 link, for all that they send: they are behind one
    // switch, or reach each other through one root. They have three quarters of its rate, and more
    // than four, which are on two processors, half of it. 0: each has its own.
    int pcie_group = 0;
    // What a sum of GPUs in a model waits for the last of them, beyond what a loop of sums takes,
    // by which sums were fitted: so much for each doubling of their number. 0 as the best engines.
    int64_t sum_skew_ns = 0;
};

// Builds the machine for devices of kinds host, simt and sim (catalogue), and with `gpus` for cuda
// and hip. Host devices share memory, bandwidth and cores; logical devices share their card's. Each
// has an equal part of the memory, and all of the rates while it works alone. UserError for a model
// the catalogue lacks, and for a wiring that none of the devices can have.
Machine build_machine(const std::vector<DeviceSpec>& specs, const HostFacts& host,
                      const GpuDescriptions* gpus = nullptr, const Wiring& wiring = {});

// The machine with the PCIe links inside each node in groups of so many catalogue cards, which
// share what one of them has (Wiring::pcie_group). Nothing where no two such cards are in a node,
// or where their links share something already.
std::optional<Machine> with_pcie_groups(const Machine& machine, int cards);

}  // namespace cleave::planner
