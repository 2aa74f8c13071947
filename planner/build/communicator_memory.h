// SPDX-License-Identifier: Apache-2.0
// What a vendor's library of collectives, NCCL or RCCL, takes of its cards' memory for itself: a
// communicator has buffers on each of its cards, which no arena of the plan holds. The library says
// nowhere how much it will be; the figures and where they come from stand in the source file.
// `collectives_bytes` of a device in a machine file says it instead, for each communicator.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "planner/plan/plan.h"

namespace cleave::planner {

// What is asked of a communicator. Buffers are made for the connections that this needs.
struct CommunicatorUse {
    bool sums = false;
    bool messages = false;  // sends and receives between its members, as gathers are made of
};

// Of `device` for one communicator of `members`, the device among them, and without what the first
// of a card takes besides.
int64_t communicator_bytes(const Machine& machine, std::span<const DeviceId> members,
                           DeviceId device, CommunicatorUse use);

// The same with it: of a card that is in one communicator.
int64_t only_communicator_bytes(const Machine& machine, std::span<const DeviceId> members,
                                DeviceId device, CommunicatorUse use);

// By device: of all communicators of the plan's steps, one for each set of devices.
std::vector<int64_t> library_bytes(const Plan& plan);

// "NCCL 2.28.9", as the device's machine has it; "NCCL" or "RCCL" of a simulated card.
std::string library_name(const DeviceInfo& device);

}  // namespace cleave::planner
