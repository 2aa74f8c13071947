// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine/replica_engines.h"

#include "planner/plan/plan_queries.h"

namespace cleave::runtime {

ReplicaEngines::ReplicaEngines(
    const planner::Plan& plan, const Tokenizer* tokenizer,
    const std::function<std::unique_ptr<Session>(planner::Plan&)>& open_session,
    const std::function<EngineOptions(const planner::Plan&)>& options_for) {
    for (int64_t r = 0; r < plan.num_replicas(); ++r)
        plans_.push_back(planner::replica_plan(plan, r));
    for (planner::Plan& one : plans_) {
        sessions_.push_back(open_session(one));
        runners_.push_back(std::make_unique<SessionRunner>(*sessions_.back()));
    }
    std::vector<Engine*> all;
    for (size_t r = 0; r < plans_.size(); ++r) {
        engines_.push_back(
            std::make_unique<Engine>(plans_[r], *runners_[r], tokenizer, options_for(plans_[r])));
        all.push_back(engines_.back().get());
    }
    group_.emplace(all);
}

}  // namespace cleave::runtime
