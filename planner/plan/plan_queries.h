// SPDX-License-Identifier: Apache-2.0
// What the text and JSON views of a plan share: a phase's point, the bytes that cross each link,
// and the names of steps. In: a sound plan. All figures are of one pass of a phase at its
// workload's point.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "planner/plan/plan.h"

namespace cleave::planner {

// The pass at which steps are quoted: the first prefill chunk, or one token of every sequence at
// decode_past.
PassPoint pass_point(const Plan& plan, bool is_prefill);

// Bytes that go from one device to another in one pass, by the pattern of each collective's
// implementation.
using LinkTraffic = std::map<std::pair<DeviceId, DeviceId>, int64_t>;
LinkTraffic link_traffic(const Plan& plan, bool is_prefill);

// Of a step: every device that takes part, each once; the value it makes; the kernel, route or
// algorithm.
std::vector<DeviceId> step_devices(const Phase& phase, const Step& step);
ValueId step_value(const Plan& plan, const Phase& phase, const Step& step);
std::string step_kind(const Step& step);
std::string step_implementation(const Step& step);
int64_t step_bytes(const Step& step, const PassPoint& point);

// The weights' dtype on devices: of the largest share of their bytes.
DType weights_dtype(const Plan& plan);

double tokens_per_second(const Plan& plan);
// objective / lower bound - 1; 0 without a bound.
double gap(const Plan& plan);

// How query heads are shared among the devices of the widest tensor-parallel stage, in words; empty
// without such a stage.
std::string head_split(const Plan& plan);

}  // namespace cleave::planner
