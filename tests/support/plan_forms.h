// SPDX-License-Identifier: Apache-2.0
// Other forms of a plan, as sound as the one given and with the same results.
#pragma once

#include <algorithm>

#include "planner/plan/plan.h"

namespace cleave::test {

// All-reduces of a phase that compute a norm.
inline int count_norms(const planner::Phase& phase) {
    return static_cast<int>(
        std::count_if(phase.steps.begin(), phase.steps.end(), [](const planner::Step& step) {
            return step.collective() && !step.collective()->weights.empty();
        }));
}

// Each norm that an all-reduce computes goes back to the launches that read its result: what may go
// another way, by host memory or the vendor's library.
inline void norms_in_readers(planner::Plan& plan) {
    using namespace planner;
    for (Phase* phase : {&plan.prefill, &plan.decode})
        for (Step& step : phase->steps) {
            auto* sum = std::get_if<Collective>(&step.action);
            if (!sum || sum->weights.empty()) continue;
            const size_t members = sum->group.size();
            for (size_t m = 0; m < members; ++m)
                for (Step& other : phase->steps) {
                    auto* reader = std::get_if<Compute>(&other.action);
                    if (!reader) continue;
                    auto read = std::find(reader->inputs.begin(), reader->inputs.end(),
                                          sum->outputs[members + m]);
                    if (read == reader->inputs.end()) continue;
                    *read = sum->outputs[m];
                    reader->ops.insert(reader->ops.begin(), sum->epilogue.back());
                    reader->weights.insert(reader->weights.begin(), sum->weights[m]);
                }
            sum->outputs.resize(members);
            sum->epilogue.pop_back();
            sum->weights.clear();
        }
}

}  // namespace cleave::test
