// SPDX-License-Identifier: Apache-2.0
// A model behind OpenAI's interface. In: the engines of its replicas and the model's tokenizer and
// template. Out: its routes over HTTP, each named in README.md beside this file. Invariants: a
// request whose client leaves is cancelled. No request takes the server down. /health and /metrics
// never wait for a prompt that is read or a pass that runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "runtime/engine/engine_group.h"
#include "tools/serve/api_calls.h"
#include "tools/serve/http_server.h"

namespace cleave::serve {

struct ServerOptions {
    std::string host = "127.0.0.1";
    uint16_t port = 0;    // 0: a free one
    std::string api_key;  // empty: none is asked for
    HttpLimits limits;
    // A pass that lasts longer than this, and than 20 usual ones, does not end, for /health.
    double wedged_seconds = 30;
    int64_t most_grammars = 32;  // calls that wait for theirs; others are told to come again
    // Of /v1/plan, made when it is asked for: the plan as JSON, and for browsers as a page.
    std::function<std::string()> plan_json, plan_page;
};

class Server {
public:
    // All must outlive it; an engine for each of the plan's replicas, in their order. UserError
    // where the port cannot be had.
    Server(runtime::EngineGroup engines, const planner::Plan& plan, const ServedModel& model,
           ServerOptions options);
    ~Server();  // drain(0 s)
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    uint16_t port() const;

    // Takes no more requests, waits for those that there are, at most so long and while `gives_up`
    // is not true, cancels the rest, and ends the engines. False where some were cancelled.
    bool drain(
        std::chrono::duration<double> at_most,
        const std::function<bool()>& gives_up = [] { return false; });

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace cleave::serve
