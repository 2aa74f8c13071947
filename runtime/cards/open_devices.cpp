// SPDX-License-Identifier: Apache-2.0
#include "runtime/cards/open_devices.h"

#include <algorithm>
#include <map>

#include "planner/plan/plan_queries.h"
#include "runtime/base/thread_team.h"
#include "runtime/cards/cards.h"
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
            "for example $devices 'host[0-3]'",
            device.name);
    }
    throw UserError(
        "{}: this build has no driver for devices of kind '{}'; it drives host, simt, cuda and hip "
        "devices, for example $devices 'host[0-3]'",
        device.name, planner::device_kind_name(device.kind));
}

}  // namespace

std::vector<int> threads_of_devices(const planner::Plan& plan, int threads) {
    const std::vector<int64_t> shares =
        planner::core_shares(plan, threads > 0 ? threads : available_cores());
    return {shares.begin(), shares.end()};
}

bool threads_fit_cores(const planner::Plan& plan, int threads) {
    std::vector<int> count = threads_of_devices(plan, threads);
    return std::all_of(plan.stages.begin(), plan.stages.end(), [&](const planner::Stage& stage) {
        std::map<std::string, int> sums;  // by host
        for (planner::DeviceId id : stage.devices)
            sums[plan.machine.device(id).host] += count[id.index()];
        return std::all_of(sums.begin(), sums.end(),
                           [](const auto& sum) { return sum.second <= available_cores(); });
    });
}

std::vector<std::unique_ptr<Device>> open_devices(const planner::Plan& plan, Drivers& drivers,
                                                  const OpenOptions& options) {
    for (const planner::DeviceInfo& device : plan.machine.devices)
        if (!planner::is_on_cores(device.kind) && !planner::is_card(device.kind)) refuse(device);
    const DeviceRanks ranks = options.ranks ? *options.ranks : ranks_of_devices(plan, nullptr);
    std::vector<int> threads = threads_of_devices(plan, options.threads);
    bool may_spin = threads_fit_cores(plan, options.threads);
    std::vector<std::unique_ptr<Device>> devices;
    for (size_t d = 0; d < plan.machine.devices.size(); ++d) {
        const planner::DeviceInfo& info = plan.machine.devices[d];
        if (!ranks.here(planner::DeviceId(d))) {
            devices.push_back(nullptr);
            continue;
        }
        if (planner::is_card(info.kind)) {
            const int card = find_card(drivers, info, plan.machine.devices);
            devices.push_back(
                make_gpu_device(drivers.driver(info.kind).driver, card, info,
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

}  // namespace cleave::runtime
