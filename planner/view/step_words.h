// SPDX-License-Identifier: Apache-2.0
// How text names steps. Devices: planner/machine/device_names.h.
#pragma once

#include <string>

#include "planner/plan/plan.h"

namespace cleave::planner {

// What a step does, without where: "norm_qkv_rope_append", "linear o_proj", "transfer",
// "all_reduce + add".
std::string step_words(const Graph& graph, const Step& step);

}  // namespace cleave::planner
