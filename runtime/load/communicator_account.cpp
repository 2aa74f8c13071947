// SPDX-License-Identifier: Apache-2.0
#include "runtime/load/communicator_account.h"

#include <algorithm>

#include "planner/build/communicator_memory.h"
#include "runtime/base/errors.h"
#include "runtime/device/async_device.h"

namespace cleave::runtime {

using namespace planner;

namespace {

int64_t free_bytes(Device& device) {
    device.stream()->make_current();
    return device.stream()->free_bytes();
}

// `had`: "has", "had".
[[noreturn]] void lacks_memory(const LibraryMemory& m, const std::string& had,
                               const std::string& cause) {
    const std::string name = m.library.substr(0, m.library.find(' '));
    throw DeviceError(
        fmt::format("opening {}", m.library),
        fmt::format(
            "the plan keeps {} bytes of its memory for {}'s own buffers, the driver {} {} bytes "
            "free{}; end what other programs hold there, let {} take less (NCCL_BUFFSIZE, "
            "NCCL_MAX_NCHANNELS), make the plan smaller ($batch, $context), or with another "
            "share "
            "(`collectives_bytes` of the device in a $machine file), or without the library "
            "(CLEAVE_{}_LIBRARY=none)",
            m.reserved_bytes, name, had, m.free_bytes, cause, name, name),
        m.device);
}

}  // namespace

LibraryAccount::LibraryAccount(const Plan& plan, std::span<const std::unique_ptr<Device>> devices) {
    for (const planner::DeviceMemory& m : plan.memory) {
        if (m.collectives == 0 || !devices[m.device.index()]) continue;
        Device& device = *devices[m.device.index()];
        if (!device.stream()) continue;
        devices_.push_back(&device);
        memory_.push_back({device.info().name, library_name(plan.machine.device(m.device)),
                           m.collectives, free_bytes(device), 0});
    }
    for (const LibraryMemory& m : memory_)
        if (m.free_bytes < m.reserved_bytes) lacks_memory(m, "has", "");
}

void LibraryAccount::close() {
    for (size_t i = 0; i < memory_.size(); ++i)
        memory_[i].taken_bytes =
            std::max<int64_t>(0, memory_[i].free_bytes - free_bytes(*devices_[i]));
}

void LibraryAccount::rethrow(const CollectiveError& failure) const {
    const auto on = std::find_if(memory_.begin(), memory_.end(), [&](const LibraryMemory& m) {
        return m.device == failure.device();
    });
    if (on == memory_.end() || !failure.may_lack_memory()) throw failure;
    lacks_memory(*on, "had", fmt::format(" before, and {}", failure.what()));
}

}  // namespace cleave::runtime
