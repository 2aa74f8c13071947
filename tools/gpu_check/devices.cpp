// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/devices.h"

#include <fmt/format.h>

#include "runtime/cards/cards.h"
#include "tools/gpu_check/origin.h"

namespace cleave::gpu_check {

namespace {

runtime::GpuListing listing_of(runtime::Drivers& drivers, planner::DeviceKind kind) {
    try {
        return runtime::list_gpus(drivers, kind);
    } catch (const std::exception& error) {
        runtime::GpuListing none;
        none.reason = error.what();
        return none;
    }
}

Json driver_of(const std::string& kind, const runtime::GpuListing& listing) {
    Json driver{{"kind", kind}};
    if (listing.reason.empty()) {
        driver["library"] = listing.library;
        driver["version"] = listing.version;
        driver["fake"] = is_fake(listing.library);
    } else {
        driver["absent"] = listing.reason;
    }
    if (!listing.visible.empty()) driver["visible"] = listing.visible;
    return driver;
}

}  // namespace

Cards find_cards(Report& report) {
    Cards cards;
    std::string reasons;
    runtime::Drivers drivers;
    for (const planner::VendorFacts& vendor : planner::vendors()) {
        const std::string name(vendor.kind_name);
        const runtime::GpuListing listing = listing_of(drivers, vendor.kind);
        report["drivers"].push_back(driver_of(name, listing));
        if (!listing.reason.empty())
            reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", name, listing.reason);
        for (size_t i = 0; i < listing.cards.size(); ++i) {
            if (!listing.errors[i].empty()) {
                report.fail("devices", listing.errors[i]);
                continue;
            }
            const runtime::GpuFacts& card = listing.cards[i];
            const std::string device = fmt::format("{}[{}]", name, i);
            if (cards.first.empty()) cards.first = device;
            cards.by_kind[name].push_back(i);
            report["devices"].push_back({{"device", device},
                                         {"name", card.name},
                                         {"uuid", card.uuid},
                                         {"pci", card.pci},
                                         {"arch", card.arch},
                                         {"memory_bytes", card.memory_bytes}});
        }
    }
    if (cards.first.empty()) report.fail("devices", "no GPU was found: " + reasons);
    return cards;
}

}  // namespace cleave::gpu_check
