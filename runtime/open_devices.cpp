// SPDX-License-Identifier: Apache-2.0
#include "runtime/open_devices.h"

#include <algorithm>

#include "runtime/drivers/host_device.h"
#include "runtime/drivers/thread_team.h"

namespace cleave::runtime {

namespace {

using planner::DeviceKind;

int count_hosts(const planner::Machine& machine) {
    return static_cast<int>(std::count_if(machine.devices.begin(), machine.devices.end(),
                                          [](const auto& d) { return d.kind == DeviceKind::kHost; }));
}

[[noreturn]] void refuse(const planner::Device& device) {
    if (device.kind == DeviceKind::kSim) {
        throw UserError("{} is a simulated device: it can be planned for, not run on; run on 'host' devices, "
                        "for example --devices host[0-3]",
                        device.name);
    }
    throw UserError("{}: this build has no driver for devices of kind '{}'; it drives 'host' devices, for example "
                    "--devices host[0-3]",
                    device.name, planner::device_kind_name(device.kind));
}

}  // namespace

bool threads_fit_cores(const planner::Machine& machine, int threads) {
    int cores = available_cores();
    int asked = threads > 0 ? threads : cores;
    return std::max(asked, count_hosts(machine)) <= cores;
}

std::vector<std::unique_ptr<Device>> open_devices(const planner::Machine& machine, const OpenOptions& options) {
    for (const planner::Device& device : machine.devices) {
        if (device.kind != DeviceKind::kHost) refuse(device);
    }
    int hosts = count_hosts(machine);
    int threads = options.threads > 0 ? options.threads : available_cores();
    HostDeviceOptions host{1, options.poison, threads_fit_cores(machine, options.threads)};
    std::vector<std::unique_ptr<Device>> devices;
    int opened = 0;
    for (const planner::Device& device : machine.devices) {
        // The first devices take one thread more where the count does not divide.
        host.threads = std::max(1, threads / hosts + (opened < threads % hosts ? 1 : 0));
        ++opened;
        devices.push_back(make_host_device(device, host));
    }
    return devices;
}

std::unique_ptr<Device> make_host_device(const planner::Device& info, const HostDeviceOptions& options) {
    return make_host_device(info, options, codegen::load_host_kernels);
}

}  // namespace cleave::runtime
