// SPDX-License-Identifier: Apache-2.0
// Ways of breaking a sound plan, each with the rule of the verifier that it breaks.
#pragma once

#include <functional>
#include <vector>

#include "planner/plan/plan.h"

namespace cleave::test {

struct Mutation {
    const char* name;
    const char* rule;
    std::function<bool(planner::Plan&)> apply;  // false: this plan has nothing of the kind
};

// All of them, in the order of a plan's parts.
std::vector<Mutation> all_mutations();

std::vector<Mutation> step_mutations();
std::vector<Mutation> operand_mutations();
std::vector<Mutation> result_mutations();
std::vector<Mutation> weight_mutations();       // of one shard
std::vector<Mutation> weight_list_mutations();  // of the plan's lists
std::vector<Mutation> cache_mutations();
std::vector<Mutation> pool_mutations();
std::vector<Mutation> contribution_mutations();
std::vector<Mutation> group_mutations();
std::vector<Mutation> transfer_mutations();
std::vector<Mutation> loop_mutations();
std::vector<Mutation> limit_mutations();
std::vector<Mutation> narrow_tile_mutations();
std::vector<Mutation> tile_mutations();
std::vector<Mutation> buffer_mutations();
std::vector<Mutation> account_mutations();
std::vector<Mutation> whole_mutations();
std::vector<Mutation> number_mutations();

// Of plans in which an all-reduce computes a norm.
std::vector<Mutation> norm_mutations();

// Of plans for many users, with replicas or groups in flight.
std::vector<Mutation> serving_mutations();

// Of plans over tensors; of those with launches of several operators.
std::vector<Mutation> tensor_mutations();
std::vector<Mutation> tensor_chain_mutations();
std::vector<Mutation> tensor_chain_operand_mutations();

// One list of all.
std::vector<Mutation> joined(const std::vector<std::vector<Mutation>>& lists);

// ---- Finding the thing to break
// ------------------------------------------------------------------

using namespace planner;

template <class Action>
size_t nth_step(const Phase& phase, size_t n = 0,
                const std::function<bool(const Action&)>& fits = {}) {
    for (size_t i = 0; i < phase.steps.size(); ++i)
        if (const Action* a = std::get_if<Action>(&phase.steps[i].action);
            a && (!fits || fits(*a)) && n-- == 0)
            return i;
    return phase.steps.size();
}

inline Compute* find_kernel(Phase& phase, KernelKind kind, size_t n = 0) {
    size_t i = nth_step<Compute>(phase, n, [&](const Compute& c) { return c.kernel == kind; });
    return i < phase.steps.size() ? &std::get<Compute>(phase.steps[i].action) : nullptr;
}
inline Transfer* find_transfer(Phase& phase) {
    size_t i = nth_step<Transfer>(phase);
    return i < phase.steps.size() ? &std::get<Transfer>(phase.steps[i].action) : nullptr;
}
inline Collective* find_collective(Phase& phase, CollectiveOp op, bool with_epilogue = false) {
    size_t i = nth_step<Collective>(phase, 0, [&](const Collective& c) {
        return c.op == op && c.epilogue.empty() != with_epilogue;
    });
    return i < phase.steps.size() ? &std::get<Collective>(phase.steps[i].action) : nullptr;
}
inline bool erase_step(Phase& phase, size_t i) {
    if (i >= phase.steps.size()) return false;
    phase.steps.erase(phase.steps.begin() + static_cast<std::ptrdiff_t>(i));
    return true;
}
inline bool repeat_step(Phase& phase, size_t i) {
    if (i >= phase.steps.size()) return false;
    Step copy = phase.steps[i];
    phase.steps.insert(phase.steps.begin() + static_cast<std::ptrdiff_t>(i), copy);
    return true;
}
// Another device of the machine; invalid on a machine of one.
inline DeviceId other_than(const Plan& plan, DeviceId device) {
    for (size_t i = 0; i < plan.machine.devices.size(); ++i)
        if (DeviceId(i) != device) return DeviceId(i);
    return DeviceId();
}
inline PlacedValue& value_of(Phase& phase, PlacedId id) { return phase.values[id.index()]; }
inline WeightShard& matrix_of(Plan& plan, const Compute& c, size_t n) {
    return plan.weights[c.weights[n].index()];
}

inline size_t kernel_step(const Phase& phase, KernelKind kind) {
    return nth_step<Compute>(phase, 0, [&](const Compute& c) { return c.kernel == kind; });
}

}  // namespace cleave::test
