// SPDX-License-Identifier: Apache-2.0
// The vendors' drivers of this build: an entry each, which the vendor's folder defines
// (cuda/vendor.cpp, hip/vendor.cpp). In: a vendor of planner/machine/vendor.h. Out: how to open its
// libraries. Nothing is opened here, and entries never change.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "planner/machine/vendor.h"
#include "runtime/base/dynamic_library.h"
#include "runtime/drivers/gpu/gpu_driver.h"
#include "runtime/drivers/gpu/link_facts.h"
#include "runtime/drivers/nccl/collective_library.h"

namespace cleave::runtime {

// A library of a vendor's, and what `cleave doctor` says of it.
struct VendorLibrary {
    const char* name;                               // "CUDA driver"
    const char* purpose;                            // "NVIDIA GPUs"
    const char* variable;                           // of the environment: the file to open instead
    std::vector<std::string> (*usual)();            // names to try
    const char* symbol;                             // one that it must have
    std::string (*version)(const DynamicLibrary&);  // as it says itself; empty: it does not
    const char* fix;                                // where it is not found

    // The file that the variable names, else the usual names.
    std::vector<std::string> names() const;
};

struct DriverEntry {
    planner::Vendor vendor;
    VendorLibrary driver, collectives, links;
    FoundDriver (*open)(std::span<const std::string> names);
    FoundCollectives (*open_collectives)(std::span<const std::string> names);
    FoundLinkFacts (*open_links)(std::span<const std::string> names);
};

const DriverEntry& driver_entry(planner::Vendor vendor);

}  // namespace cleave::runtime
