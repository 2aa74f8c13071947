// SPDX-License-Identifier: Apache-2.0
// What a vendor's library of collectives takes of its cards' memory, held against what the plan
// keeps for it (planner/build/communicator_memory.h). The drivers are asked before the first
// communicator is opened and after the first operation of the last one: much is taken when it is
// first used. One thread, while nothing else runs on the devices.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "planner/plan/plan.h"
#include "runtime/device/device.h"
#include "runtime/drivers/nccl/collective_library.h"

namespace cleave::runtime {

struct LibraryMemory {
    std::string device;
    std::string library;         // "NCCL 2.28.9"
    int64_t reserved_bytes = 0;  // by the plan
    int64_t free_bytes = 0;      // by the driver, before
    int64_t taken_bytes = 0;     // by the library, and whatever other programs took meanwhile
};

class LibraryAccount {
public:
    // Of the devices for which the plan keeps something. DeviceError where the driver has less than
    // that.
    LibraryAccount(const planner::Plan& plan, std::span<const std::unique_ptr<Device>> devices);

    // What was taken is known from now on.
    void close();
    const std::vector<LibraryMemory>& memory() const { return memory_; }

    // A failure of the library as it is to be told: where memory may have lacked, with the plan's
    // share, the driver's word, and what can be done. Else as it is.
    [[noreturn]] void rethrow(const CollectiveError& failure) const;

private:
    std::vector<LibraryMemory> memory_;
    std::vector<Device*> devices_;  // of memory_
};

}  // namespace cleave::runtime
