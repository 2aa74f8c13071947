// SPDX-License-Identifier: Apache-2.0
#include "runtime/cards/drivers.h"

#include <algorithm>

#include "runtime/base/errors.h"

namespace cleave::runtime {

namespace {

const DriverEntry& entry_of(planner::DeviceKind kind) {
    const planner::VendorFacts* vendor = planner::vendor_of(kind);
    CLEAVE_CHECK(vendor) << "no vendor drives " << planner::device_kind_name(kind);
    return driver_entry(vendor->vendor);
}

// What `open` finds, asked for once.
template <class Found, class Open>
const Found& once(std::map<planner::Vendor, Found>& all, const DriverEntry& entry,
                  const VendorLibrary& library, Open open) {
    auto [at, fresh] = all.try_emplace(entry.vendor);
    if (!fresh) return at->second;
    try {
        at->second = open(library.names());
    } catch (const DeviceError& error) {
        at->second.reason = error.what();
    }
    return at->second;
}

}  // namespace

const FoundDriver& Drivers::driver(planner::DeviceKind kind) {
    const DriverEntry& entry = entry_of(kind);
    const std::lock_guard lock(mutex_);
    return once(drivers_, entry, entry.driver, entry.open);
}

const FoundCollectives& Drivers::collectives(planner::DeviceKind kind) {
    const DriverEntry& entry = entry_of(kind);
    const std::lock_guard lock(mutex_);
    return once(collectives_, entry, entry.collectives, entry.open_collectives);
}

const FoundLinkFacts& Drivers::links(planner::DeviceKind kind) {
    const DriverEntry& entry = entry_of(kind);
    const std::lock_guard lock(mutex_);
    return once(links_, entry, entry.links, entry.open_links);
}

std::map<planner::Vendor, std::string> Drivers::versions(const planner::Machine& machine) {
    std::map<planner::Vendor, std::string> versions;
    for (const planner::DeviceInfo& device : machine.devices) {
        const planner::VendorFacts* vendor = planner::vendor_of(device.kind);
        if (!vendor || versions.contains(vendor->vendor)) continue;
        if (const FoundDriver& found = driver(device.kind); found.driver)
            versions[vendor->vendor] = found.driver->version();
    }
    return versions;
}

bool Drivers::has_card_left_alone() {
    const std::lock_guard lock(mutex_);
    return std::any_of(drivers_.begin(), drivers_.end(), [](auto& found) {
        return found.second.driver && found.second.driver->left_alone().works();
    });
}

}  // namespace cleave::runtime
