// SPDX-License-Identifier: Apache-2.0
// The replicas of a plan, each opened as a session of its own.
#pragma once

#include <memory>
#include <vector>

#include "runtime/generate/generate.h"

namespace cleave::tools {

// Sessions refer to the plans: neither list may grow afterwards.
struct OpenedReplicas {
    std::vector<planner::Plan> plans;
    std::vector<std::unique_ptr<runtime::Session>> sessions;

    std::vector<runtime::OpenReplica> all() const {
        std::vector<runtime::OpenReplica> replicas;
        for (size_t r = 0; r < plans.size(); ++r) replicas.push_back({*sessions[r], plans[r]});
        return replicas;
    }
    // Of value(session), over all.
    template <class Value>
    auto sum(Value&& value) const {
        decltype(value(*sessions[0])) all{};
        for (const auto& session : sessions) all += value(*session);
        return all;
    }
};

}  // namespace cleave::tools
