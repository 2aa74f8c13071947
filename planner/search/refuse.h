// SPDX-License-Identifier: Apache-2.0
// The refusal of a model that does not fit: each device's need, capacity and deficit for the plan
// that comes nearest, and the smallest changes that would fit, each tried before it is named.
#pragma once

#include <functional>
#include <string>
#include <utility>
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

// No plan fits in memory. what() has every device's need, capacity and deficit and the fixes as
// text.
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

// Whether a plan exists for another machine, workload and options.
using Fits = std::function<bool(const Machine&, const Workload&, const PlanOptions&)>;

// `nearest`: a plan with memory accounts; at least one device lacks memory.
[[noreturn]] void refuse(const Plan& nearest, const Fits& fits);

}  // namespace cleave::planner
