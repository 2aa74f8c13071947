// SPDX-License-Identifier: Apache-2.0
#include "runtime/drivers/vendors.h"

#include "runtime/base/environment.h"
#include "runtime/base/errors.h"

namespace cleave::runtime {

// Each is in the vendor.cpp of its folder.
const DriverEntry& cuda_entry();
const DriverEntry& hip_entry();

std::vector<std::string> VendorLibrary::names() const {
    const std::string named = environment(variable);
    return named.empty() ? usual() : std::vector{named};
}

const DriverEntry& driver_entry(planner::Vendor vendor) {
    for (const DriverEntry* entry : {&cuda_entry(), &hip_entry()})
        if (entry->vendor == vendor) return *entry;
    throw InternalError(fmt::format("no driver is built in for the vendor of {} devices",
                                    planner::vendor_facts(vendor).kind_name));
}

}  // namespace cleave::runtime
