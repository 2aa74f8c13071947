// SPDX-License-Identifier: Apache-2.0
#include "planner/baselines.h"

#include <algorithm>

#include "runtime/base/errors.h"

namespace cleave::planner {

Placement equal_units(const Analysis& analysis, const Machine& machine, int tensor_parallel, int pipeline_stages) {
    auto units = static_cast<int64_t>(analysis.units.size());
    CHECK(pipeline_stages >= 1 && pipeline_stages <= units) << pipeline_stages << " stages of " << units << " units";
    CHECK(static_cast<size_t>(tensor_parallel) * pipeline_stages <= machine.devices.size()) << "too few devices";
    Placement placement;
    for (int64_t s = 0; s < pipeline_stages; ++s) {
        StageChoice stage;
        for (int64_t i = 0; i < tensor_parallel; ++i) stage.devices.push_back(DeviceId(s * tensor_parallel + i));
        stage.shares.weights.assign(tensor_parallel, 1);
        stage.begin = analysis.units[s * units / pipeline_stages].begin;
        stage.end = analysis.units[(s + 1) * units / pipeline_stages - 1].end;
        placement.stages.push_back(std::move(stage));
    }
    return placement;
}

}  // namespace cleave::planner
