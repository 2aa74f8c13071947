// SPDX-License-Identifier: Apache-2.0
// A small Llama graph, and a plan of it written out by hand: no search, no fusion choice, no
// sharing of memory. What the tests of the verifier and of the plan's views start from; it shares
// no code with the planner.
#pragma once

#include <string>
#include <vector>

#include "planner/plan/plan.h"

namespace cleave::test {

struct TinyShape {
    int64_t layers = 2, hidden = 16, heads = 4, kv_heads = 2, head_dim = 4, intermediate = 24,
            vocab = 32;
    bool o_bias = false;
};

importer::Graph tiny_graph(const TinyShape& shape = {});

// `num_devices` host devices with a link between every two.
planner::Machine tiny_machine(int num_devices);

// stages[i] are the devices of stage i; query heads, MLP columns and vocabulary rows are shared out
// as evenly as whole units allow. Layers are shared out likewise.
planner::Plan hand_plan(const std::vector<std::vector<int>>& stages, const TinyShape& shape = {});

}  // namespace cleave::test
