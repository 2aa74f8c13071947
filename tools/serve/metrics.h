// SPDX-License-Identifier: Apache-2.0
// What a server tells Prometheus: the engines' statistics as they are when asked, and how long
// requests took. Names are vLLM's behind "cleave:", so that its dashboards fit. Of a plan with
// replicas, a stage also has the number of its replica.
// Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "planner/plan/plan.h"
#include "runtime/engine/engine_group.h"

namespace cleave::serve {

class Metrics {
public:
    Metrics(const planner::Plan& plan, const std::string& model);
    ~Metrics();

    // A request that has ended.
    void add(const runtime::RequestUsage& usage);

    // The text format of Prometheus 0.0.4.
    // One engine for each of the plan's replicas.
    std::string text(const runtime::EngineGroup& engines, size_t connections) const;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace cleave::serve
