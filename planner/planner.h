// SPDX-License-Identifier: Apache-2.0
// Graph + Machine + Workload + options -> Plan. The passes, in order, stand in planner/planner.cpp.
#pragma once

#include <string>
#include <vector>

#include "planner/plan/plan.h"
#include "runtime/base/errors.h"

namespace cleave::planner {

// What a device lacks, and what would make the model fit.
struct Deficit {
    std::string device;
    int64_t needed_bytes = 0;
    int64_t capacity_bytes = 0;
    int64_t deficit_bytes = 0;  // 0 for a device that has enough
};

// No plan fits in memory. what() has every device's need, capacity and deficit and the fixes as text.
class DoesNotFit : public UserError {
public:
    DoesNotFit(const std::string& message, std::vector<Deficit> devices,
               std::vector<std::string> fixes)
        : UserError(message), devices_(std::move(devices)), fixes_(std::move(fixes)) {}
    const std::vector<Deficit>& devices() const { return devices_; }
    const std::vector<std::string>& fixes() const { return fixes_; }

private:
    std::vector<Deficit> devices_;
    std::vector<std::string> fixes_;
};

// Searches and builds the plan, and proves it with verify_plan before returning. Deterministic; thread-safe.
// UserError for options that cannot be met (tp x pp that does not use the devices, a pin that contradicts, a
// prompt longer than the context), DoesNotFit when memory does not suffice. Never reads weight bytes.
Plan make_plan(const Graph& graph, const Machine& machine, const Workload& workload,
               const PlanOptions& options);

}  // namespace cleave::planner
