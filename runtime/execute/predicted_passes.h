// SPDX-License-Identifier: Apache-2.0
// When each step of a pass that ran should have begun and ended, by the plan's own costs: the
// planner's event simulation of that phase at the pass's size. In: a plan, sizes of passes. Passes
// whose tokens see nearly as many keys (within a sixteenth of an octave) share a simulation, so a
// long trace needs few. One thread uses an object at a time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "planner/analysis/analysis.h"
#include "planner/cost/simulate.h"
#include "planner/plan/plan.h"
#include "runtime/execute/trace.h"

namespace cleave::runtime {

class PredictedPasses {
public:
    // The plan must outlive the object.
    explicit PredictedPasses(const planner::Plan& plan);
    // By step of the phase, from the pass's begin.
    const std::vector<planner::StepSpan>& of(const TracePass& pass);

private:
    const planner::Plan& plan_;
    planner::Analysis analysis_;
    std::map<std::array<int64_t, 4>, std::vector<planner::StepSpan>> known_;
};

// The end of the last step.
int64_t pass_ns(const std::vector<planner::StepSpan>& spans);

// A pass's point of the plan's amounts of bytes and operations.
inline planner::PassPoint point_of(const TracePass& pass) {
    return {pass.tokens, pass.outputs, pass.keys};
}

}  // namespace cleave::runtime
