// SPDX-License-Identifier: Apache-2.0
// What a server tells Prometheus: the engine's statistics as they are when asked, and how long
// requests took. Names are vLLM's behind "cleave:", so that its dashboards fit.
// Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "planner/plan/plan.h"
#include "runtime/engine/engine.h"

namespace cleave::serve {

class Metrics {
public:
    Metrics(const planner::Plan& plan, const std::string& model);
    ~Metrics();

    // A request that has ended.
    void add(const runtime::RequestUsage& usage);

    // The text format of Prometheus 0.0.4.
    std::string text(const runtime::EngineStatistics& statistics, size_t connections) const;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace cleave::serve
