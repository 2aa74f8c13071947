// SPDX-License-Identifier: Apache-2.0
// Perplexity of a text with overlapping windows: a window of the context moves by half its length.
// Each token is scored once, by the first window that holds it, so that at least half a context
// comes before it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/session/session.h"

namespace cleave::runtime {

// Mean negative log-likelihood (nats) of tokens[1..] given the tokens before each, in
// windows of the context. UserError where logits are not numbers.
struct ScoreResult {
    double nll = 0;
    double perplexity = 0;
    int64_t tokens = 0;
};
// `progress` gets the tokens that are done, and all, after each pass.
ScoreResult score(Session& session, const planner::Plan& plan, const std::vector<int32_t>& tokens,
                  const std::function<void(int64_t done, int64_t total)>& progress = {});

}  // namespace cleave::runtime
