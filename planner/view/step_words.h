// SPDX-License-Identifier: Apache-2.0
// How text names steps and devices.
#pragma once

#include <string>
#include <vector>

#include "planner/plan/plan.h"

namespace cleave::planner {

// Devices in a row share a name up to the index: "host[0-3], cuda[0]".
std::string folded_names(const Machine& machine, const std::vector<DeviceId>& devices);

// What a step does, without where: "norm_qkv_rope_append", "linear o_proj", "transfer",
// "all_reduce + add".
std::string step_words(const Graph& graph, const Step& step);

}  // namespace cleave::planner
