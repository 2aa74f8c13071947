// SPDX-License-Identifier: Apache-2.0
// The vendors whose devices are driven through libraries opened at run time ("cards"), one row of
// facts each. Everything that differs between vendors and is data is in this table; code that
// differs is in runtime/drivers/<vendor>/, the run-time compilers and the kernels' templates.
// runtime/README.md says how to add a vendor.
#pragma once

#include <span>
#include <string_view>

#include "planner/machine/machine.h"

namespace cleave::planner {

struct VendorFacts {
    Vendor vendor;
    DeviceKind kind;                              // of its cards
    std::string_view kind_name;                   // that kind in device lists: "cuda"
    std::string_view arch_prefix;                 // its architectures begin so: "sm_"
    const char* arch_macro;                       // names GpuArch::number to kernels
    std::span<const std::string_view> compilers;  // at run time, the preferred one first
    std::string_view platform;                    // other tools number its cards so: "CUDA"
    std::string_view collectives;                 // its library of collectives: "NCCL"
    int collectives_channels;                     // of that library, over links of its own
    LinkKind own_link;                            // the links of its own between cards
    std::string_view own_link_name;               // "nvlink"
    bool links_form_a_mesh;                       // each pair has its own; else all share a switch

    // How its cards count and order.
    bool registers_of_block;  // a launch is refused when a block needs more than GpuArch::registers
    bool counts_small_blocks;  // GpuUnit::blocks bounds blocks of one warp, too
    bool grid_of_threads;      // an axis of a grid has fewer than 2^32 threads, not blocks
    bool explicit_caches;      // other devices see stores once the kernel's caches are written back

    // Variables of the environment that its driver reads, and files of the kernel's device nodes.
    const char* visible_variable;                     // chooses among its cards
    std::span<const char* const> visible_variables;   // all that do
    std::span<const char* const> blocking_variables;  // make each launch wait for its kernel
    const char* queues_variable;                      // hardware queues of a card
    std::span<const char* const> device_nodes;        // one of them is there with its driver
};

std::span<const VendorFacts> vendors();
const VendorFacts& vendor_facts(Vendor vendor);

// Null where there is none: of a kind of device; of a kind of link; of a device, by its kind or by
// the architecture that it simulates or imitates.
const VendorFacts* vendor_of(DeviceKind kind);
const VendorFacts* vendor_of(LinkKind kind);
const VendorFacts* vendor_of(const DeviceInfo& device);

// Whether a vendor's driver runs devices of the kind.
inline bool is_card(DeviceKind kind) { return vendor_of(kind) != nullptr; }
// Whether it is a vendor's own link, over which cards always reach each other's memory.
inline bool is_own_link(LinkKind kind) { return vendor_of(kind) != nullptr; }

}  // namespace cleave::planner
