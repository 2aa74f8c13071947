// SPDX-License-Identifier: Apache-2.0
// What the devices of a plan need so that kernels of one reach the memory of another: access, given
// once; their mailboxes, through which the host stops kernels that wait and hears whom they waited
// for in vain. In: a plan, its devices. Threads: `stop` from any; `check` of a device from its
// worker.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "planner/plan/plan.h"
#include "runtime/device/device.h"

namespace cleave::runtime {

class PeerLinks {
public:
    // Gives each pair that exchanges by peer memory access to each other. UserError naming the pair
    // and the reason where the devices at hand cannot do what the plan says.
    PeerLinks(const planner::Plan& plan, std::span<const std::unique_ptr<Device>> devices,
              int watchdog_seconds);

    // How long a device's kernel waits for a peer, by its own clock: less than the watchdog, so
    // that the one who is missing is named.
    int64_t limit(planner::DeviceId device) const;
    // The same, when devices meet before the first pass: kernels that cannot run side by side are
    // found soon.
    int64_t meeting_limit(planner::DeviceId device) const;

    // The mailbox of a device that takes part, as its kernels see it.
    DeviceAddress mailbox(planner::DeviceId device) const;

    // Kernels that wait leave; later ones do not begin.
    void stop();

    // DeviceError naming step and member when a kernel of the device waited for longer.
    void check(planner::DeviceId device) const;

private:
    const planner::Plan& plan_;
    int64_t meeting_limit_ns() const { return std::min<int64_t>(limit_ns_, 10'000'000'000); }

    std::span<const std::unique_ptr<Device>> devices_;
    int64_t limit_ns_;
    std::vector<uint32_t*> mailboxes_;  // by device; null: takes no part
};

}  // namespace cleave::runtime
