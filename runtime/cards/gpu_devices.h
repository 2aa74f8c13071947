// SPDX-License-Identifier: Apache-2.0
// The GPUs of this machine, as the vendors' drivers give them. In: device lists as the user writes
// them (by index, UUID or PCI address). Out: descriptions for the planner, and the card behind a
// device of a plan. Drivers are opened when they are first asked for, once a process. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "planner/machine/build_machine.h"
#include "planner/machine/machine.h"
#include "runtime/drivers/gpu/gpu_driver.h"

namespace cleave::runtime {

// The driver of kind cuda or hip, or why there is none. CLEAVE_CUDA_LIBRARY and CLEAVE_HIP_LIBRARY
// name a library to open in place of the usual ones.
const FoundDriver& gpu_driver(planner::DeviceKind kind);

// "13.0": what the CUDA driver says of itself, for codegen::CompileOptions; empty where there is
// none.
std::string cuda_driver_version();

// Opens `library` when the kind is next asked for (empty: the usual ones), and forgets the driver
// that was open.
void use_gpu_library(planner::DeviceKind kind, const std::string& library);

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
FoundGpus found_gpus();

// What `cleave devices` says of a kind: its cards, and the variable that chose among them.
struct GpuListing {
    planner::DeviceKind kind = planner::DeviceKind::kCuda;
    std::string library, version, reason;  // reason: why there is none
    std::string visible;                   // "CUDA_VISIBLE_DEVICES=2,3", all that are set
    std::vector<GpuFacts> cards;
    std::vector<std::string> errors;  // by card: why it does not say what it is; else empty
    // Of cards whose links the vendor's library (NVML, ROCm SMI) does not tell: why, with every
    // name tried. Else empty.
    std::string no_links;
};
GpuListing list_gpus(planner::DeviceKind kind);

// Whether a card works on something that did not end in time and was left alone. A process that
// ends in the usual way might wait for it in its libraries' last calls.
bool has_card_left_alone();

// Descriptions from the drivers. Rates are the catalogue's where it knows the card by its name,
// else the driver's clocks times the widths of the architecture; reserved_bytes is what was taken
// of the memory when it was asked, and what a session takes beside the plan's bytes.
const planner::GpuDescriptions& real_gpus();

// The driver's ordinal of a device of a plan, by UUID or PCI address where the plan has one.
// UserError that names the plan's devices and this machine's when the card is not here or another
// one stands at its index.
int find_card(const planner::DeviceInfo& device, const std::vector<planner::DeviceInfo>& of_plan);

}  // namespace cleave::runtime
