// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/pcie_range.h"

#include "planner/cost/simulate.h"
#include "planner/machine/build_machine.h"

namespace cleave::planner {

void predict_one_pcie_link(const Analysis& analysis, Plan& plan) {
    plan.prediction.one_pcie_link = {};
    const auto all = static_cast<int>(plan.machine.devices.size());
    std::optional<Machine> shared = with_pcie_groups(plan.machine, all);
    if (!shared) return;
    Plan other = plan;
    other.machine = *std::move(shared);
    simulate(analysis, other);
    const Prediction &was = plan.prediction, &is = other.prediction;
    if (is.prefill_ns > was.prefill_ns || is.decode_ns_per_token > was.decode_ns_per_token)
        plan.prediction.one_pcie_link = {is.prefill_ns, is.decode_ns_per_token};
}

}  // namespace cleave::planner
