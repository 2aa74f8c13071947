// SPDX-License-Identifier: Apache-2.0
// The replicas of a plan, opened to serve: a session, its runner and an engine for each, and the
// group of the engines. In: a plan, how a replica's session is opened, its engine's options.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "planner/plan/plan.h"
#include "runtime/engine/engine_group.h"
#include "runtime/engine/pass_runner.h"
#include "runtime/session/session.h"
#include "runtime/text/tokenizer.h"

namespace cleave::runtime {

class ReplicaEngines {
public:
    // The functions are called for each replica's own plan, which lives as long as this. What they
    // throw; UserError as Engine has it. `tokenizer` as Engine has it.
    ReplicaEngines(const planner::Plan& plan, const Tokenizer* tokenizer,
                   const std::function<std::unique_ptr<Session>(planner::Plan&)>& open_session,
                   const std::function<EngineOptions(const planner::Plan&)>& options_for);
    ReplicaEngines(const ReplicaEngines&) = delete;
    ReplicaEngines& operator=(const ReplicaEngines&) = delete;

    const EngineGroup& group() const { return *group_; }

private:
    // In the order of construction: engines end before what they use.
    std::vector<planner::Plan> plans_;
    std::vector<std::unique_ptr<Session>> sessions_;
    std::vector<std::unique_ptr<SessionRunner>> runners_;
    std::vector<std::unique_ptr<Engine>> engines_;
    std::optional<EngineGroup> group_;
};

}  // namespace cleave::runtime
