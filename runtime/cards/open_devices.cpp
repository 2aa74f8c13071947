// SPDX-License-Identifier: Apache-2.0
#include "runtime/cards/open_devices.h"

#include <algorithm>

#include "runtime/base/thread_team.h"
#include "runtime/cards/gpu_devices.h"
#include "runtime/drivers/gpu/gpu_device.h"
#include "runtime/drivers/host/host_device.h"
#include "runtime/drivers/simt_device.h"

namespace cleave::runtime {

namespace {

using planner::DeviceKind;

[[noreturn]] void refuse(const planner::DeviceInfo& device) {
    if (device.kind == DeviceKind::kSim) {
        throw UserError(
            "{} is a simulated device: it can be planned for, not run on; run on 'host' devices, "
            "for example --devices host[0-3]",
            device.name);
    }
    throw UserError(
        "{}: this build has no driver for devices of kind '{}'; it drives host, simt, cuda and hip "
        "devices, for example --devices host[0-3]",
        device.name, planner::device_kind_name(device.kind));
}

// Whether the host's cores do the device's work.
bool on_cores(const planner::DeviceInfo& device) {
    return device.kind == DeviceKind::kHost || device.kind == DeviceKind::kSimt;
}

}  // namespace

std::vector<int> threads_of_devices(const planner::Plan& plan, int threads) {
    int all = threads > 0 ? threads : available_cores();
    std::vector<int> count(plan.machine.devices.size(), 0);
    auto is_host = [&](planner::DeviceId id) { return on_cores(plan.machine.device(id)); };
    for (const planner::Stage& stage : plan.stages) {
        int hosts =
            static_cast<int>(std::count_if(stage.devices.begin(), stage.devices.end(), is_host));
        int met = 0;
        for (planner::DeviceId id : stage.devices) {
            if (!is_host(id)) continue;
            // The first devices take one thread more where the count does not divide.
            int share = std::max(1, all / hosts + (met++ < all % hosts ? 1 : 0));
            count[id.index()] = std::max(count[id.index()], share);
        }
    }
    for (size_t d = 0; d < count.size(); ++d) {
        if (count[d] == 0 && on_cores(plan.machine.devices[d])) count[d] = 1;  // in no stage
    }
    return count;
}

bool threads_fit_cores(const planner::Plan& plan, int threads) {
    std::vector<int> count = threads_of_devices(plan, threads);
    return std::all_of(plan.stages.begin(), plan.stages.end(), [&](const planner::Stage& stage) {
        int sum = 0;
        for (planner::DeviceId id : stage.devices) sum += count[id.index()];
        return sum <= available_cores();
    });
}

std::vector<std::unique_ptr<Device>> open_devices(const planner::Plan& plan,
                                                  const OpenOptions& options) {
    for (const planner::DeviceInfo& device : plan.machine.devices) {
        if (!on_cores(device) && !planner::is_card(device.kind)) refuse(device);
    }
    std::vector<int> threads = threads_of_devices(plan, options.threads);
    bool may_spin = threads_fit_cores(plan, options.threads);
    std::vector<std::unique_ptr<Device>> devices;
    for (size_t d = 0; d < plan.machine.devices.size(); ++d) {
        const planner::DeviceInfo& info = plan.machine.devices[d];
        if (planner::is_card(info.kind)) {
            const int card = find_card(info, plan.machine.devices);
            devices.push_back(
                make_gpu_device(gpu_driver(info.kind).driver, card, info,
                                {.poison = options.poison,
                                 .settle_time = std::chrono::seconds(options.settle_seconds)}));
        } else if (info.kind == DeviceKind::kSimt) {
            devices.push_back(
                make_simt_device(info, {.threads = threads[d],
                                        .poison = options.poison,
                                        .seed = options.simt_seed.value_or(0) + d,
                                        .shuffle_order = options.simt_seed.has_value()}));
        } else {
            devices.push_back(make_host_device(info, {threads[d], options.poison, may_spin}));
        }
    }
    return devices;
}

std::string cuda_driver_of(const planner::Plan& plan) {
    const bool any = std::any_of(
        plan.machine.devices.begin(), plan.machine.devices.end(),
        [](const planner::DeviceInfo& device) { return device.kind == DeviceKind::kCuda; });
    return any ? cuda_driver_version() : "";
}

std::unique_ptr<Device> make_host_device(const planner::DeviceInfo& info,
                                         const HostDeviceOptions& options) {
    return make_host_device(info, options, codegen::load_host_kernels);
}

}  // namespace cleave::runtime
