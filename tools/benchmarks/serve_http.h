// SPDX-License-Identifier: Apache-2.0
// The server of `cleave serve` over a runner, for clients that send prompts of token ids. Every
// token has a text of its own, so that each is an event of a stream.
#pragma once

#include <memory>
#include <vector>

#include "planner/plan/plan.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/serve_trace.h"
#include "tools/benchmarks/http_load.h"
#include "tools/serve/server.h"

namespace cleave::bench {

class OverHttp {
public:
    // Both must outlive it, and the runner is its alone meanwhile.
    OverHttp(const planner::Plan& plan, runtime::PassRunner& runner);

    // In real time. Prompts are random tokens.
    HttpTimes serve(const std::vector<runtime::TraceRequest>& trace);

private:
    const planner::Plan& plan_;
    std::unique_ptr<runtime::Tokenizer> tokenizer_;
    runtime::Engine engine_;
    serve::ServedModel model_;
    serve::Server server_;
};

}  // namespace cleave::bench
