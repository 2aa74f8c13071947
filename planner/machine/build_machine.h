// SPDX-License-Identifier: Apache-2.0
// In: a device list, the facts of this host, and the drivers' descriptions of real GPUs. Out: the
// Machine with every device and every link.
#pragma once

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

// Builds the machine for devices of kinds host, simt and sim (catalogue), and with `gpus` for cuda
// and hip. Host devices share memory, bandwidth and cores; logical devices share their card's. Each
// has an equal part of the memory, and all of the rates while it works alone. UserError for a model
// the catalogue lacks. `fabric` joins the nodes of catalogue devices; without it that of their
// models, and a UserError where these have none.
Machine build_machine(const std::vector<DeviceSpec>& specs, const HostFacts& host,
                      const GpuDescriptions* gpus = nullptr, std::string_view fabric = {});

}  // namespace cleave::planner
