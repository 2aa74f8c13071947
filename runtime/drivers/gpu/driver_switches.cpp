// SPDX-License-Identifier: Apache-2.0
#include "runtime/drivers/gpu/driver_switches.h"

#include <algorithm>
#include <string>

#include "planner/cost/peer_exchange.h"
#include "runtime/base/environment.h"
#include "runtime/base/errors.h"

namespace cleave::runtime {

namespace {

// `otherwise`: what it is where it is not set.
bool is_on(const char* variable, bool otherwise, const char* on, const char* off) {
    constexpr const char* kUnset = ", as without the variable";
    const std::string set = environment(variable);
    const std::string wish = !set.empty() ? set : otherwise ? "1" : "0";
    if (wish != "0" && wish != "1")
        throw UserError("{}={}: 1 ({}{}) or 0 ({}{})", variable, wish, on, otherwise ? kUnset : "",
                        off, otherwise ? "" : kUnset);
    return wish == "1";
}

}  // namespace

bool wants_graphs() {
    return is_on("CLEAVE_GPU_GRAPHS", true, "decode is captured as graphs and replayed",
                 "its kernels are launched one by one");
}

bool wants_overlap() {
    return is_on("CLEAVE_GPU_OVERLAP", true,
                 "kernels of decode begin before those before them have ended, where the card can",
                 "each begins when the one before it has ended");
}

bool wants_hip_pools() {
    return is_on("CLEAVE_HIP_POOLS", false, "memory of AMD's cards is of pools",
                 "each allocation is its own");
}

std::vector<planner::DeviceId> devices_on_card(const planner::Plan& plan,
                                               planner::DeviceId device) {
    const planner::DeviceInfo& mine = plan.machine.device(device);
    std::vector<planner::DeviceId> on_card;
    for (size_t d = 0; d < plan.machine.devices.size(); ++d) {
        const planner::DeviceInfo& other = plan.machine.devices[d];
        if (other.host == mine.host && other.kind == mine.kind && other.index == mine.index)
            on_card.emplace_back(d);
    }
    return on_card;
}

bool may_overlap(const planner::Plan& plan, planner::DeviceId device) {
    const auto exchanges = [](const planner::Phase& phase) {
        return std::any_of(phase.steps.begin(), phase.steps.end(), planner::goes_by_peers);
    };
    return devices_on_card(plan, device).size() == 1 ||
           !(exchanges(plan.prefill) || exchanges(plan.decode));
}

}  // namespace cleave::runtime
