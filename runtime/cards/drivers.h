// SPDX-License-Identifier: Apache-2.0
// The vendors' libraries of one process, each opened when it is first asked for and kept while this
// object lives. Everything that drives cards of a process shares one object, so that all of it
// knows which cards must be left alone. Thread-safe.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "planner/machine/vendor.h"
#include "runtime/drivers/vendors.h"

namespace cleave::runtime {

class Drivers {
public:
    Drivers() = default;
    Drivers(const Drivers&) = delete;
    Drivers& operator=(const Drivers&) = delete;

    // The driver of the kind's vendor, its library of collectives, and what knows its links; or why
    // there is none. Of kinds of cards only. References stay valid.
    const FoundDriver& driver(planner::DeviceKind kind);
    const FoundCollectives& collectives(planner::DeviceKind kind);
    const FoundLinkFacts& links(planner::DeviceKind kind);

    // By vendor of the machine's cards, what the driver says of its version: "13.0".
    std::map<planner::Vendor, std::string> versions(const planner::Machine& machine);

    // Whether a card works on something that did not end in time and was left alone. A process that
    // ends in the usual way might wait for it in its libraries' last calls.
    bool has_card_left_alone();

private:
    std::mutex mutex_;
    std::map<planner::Vendor, FoundDriver> drivers_;
    std::map<planner::Vendor, FoundCollectives> collectives_;
    std::map<planner::Vendor, FoundLinkFacts> links_;
};

}  // namespace cleave::runtime
