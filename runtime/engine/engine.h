// SPDX-License-Identifier: Apache-2.0
// Many requests at once over one plan. In: requests from any thread. Out: their events, by sinks
// that one thread, the engine's, calls. That thread asks the scheduler for passes, has them run,
// chooses tokens on the host and gives them back.
//  - What is queued is bounded by SchedulerOptions::max_queue, what runs by the plan's batch.
//  - A cancel takes effect before the next pass that is made, also in the queue and in a prompt.
//  - A fault of a device ends every request with the fault's text; the engine is then dead.
//  - A request whose logits are not numbers ends alone.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "planner/plan/plan.h"
#include "runtime/engine/pass_runner.h"
#include "runtime/engine/request.h"
#include "runtime/engine/scheduler.h"
#include "runtime/text/tokenizer.h"

namespace cleave::runtime {

struct EngineOptions {
    SchedulerOptions scheduler;
};

enum class Refusal : uint8_t {
    kNone,
    kNeverFits,  // the plan has no room for it, however long it waits
    kQueueFull,  // it may be accepted later
    kDraining,   // drain() or shutdown() was called
    kDead,       // a device failed
};

struct EngineAdmission {
    std::optional<RequestId> request;  // absent: refused
    Refusal refusal = Refusal::kNone;
    std::string reason;  // of the refusal, with the numbers
};

struct EngineStatistics {
    SchedulerStatistics scheduler;
    int64_t requests = 0;               // whose last event is to come
    int64_t accepted = 0, refused = 0;  // since the start
    std::array<int64_t, 4> finished{};  // copies, by FinishReason
    int64_t prompt_tokens = 0;          // of accepted requests
    int64_t new_tokens = 0;             // given to sinks
    int64_t passes = 0;                 // that have ended
    double pass_seconds = 0;            // from submission to result, of all; passes may overlap
    double active_seconds = 0;          // in which a pass was in flight
    double oldest_pass_seconds = 0;     // that the oldest pass in flight has lasted; 0: idle
    // Of each device, so far (PassRunner::busy_seconds).
    std::vector<std::optional<double>> busy_seconds;
    std::string fault;  // what killed the engine; empty: it lives
};

class Engine {
public:
    // `plan`, `runner` and `tokenizer` must outlive the engine, and the runner is its alone.
    // Without a tokenizer events have no text. UserError where the options do not fit the plan
    // (Scheduler), or the plan takes no tokens.
    Engine(const planner::Plan& plan, PassRunner& runner, const Tokenizer* tokenizer,
           const EngineOptions& options);
    ~Engine();  // shutdown()
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    // The functions from here on may be called by any thread.

    // UserError for a request that is wrong in itself: ids that are no tokens, options out of
    // range, stop texts without a tokenizer. The first event may come before add() returns.
    EngineAdmission add(EngineRequest request, EventSink sink);

    // The request's copies that have not ended end with kCancelled. Tokens of a pass that has run
    // may still come before. Nothing for a request that has ended.
    void cancel(RequestId request);

    // Takes no more requests, and waits for those that there are and for passes in flight. False
    // where some are left after that time; 0 seconds: does not wait.
    bool drain(std::chrono::duration<double> at_most);

    // Takes no more requests, cancels all, waits for passes in flight and ends the thread. Not from
    // a sink.
    void shutdown();

    EngineStatistics statistics() const;
    EngineLimits limits() const;

    // Why requests run one after another, each prompt in one pass and no prefix shared; empty where
    // they run together.
    const std::string& runs_alone() const;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// SchedulerOptions::groups that keep the stages of `plan` busy, by its costs and the machine's
// cores. `threads` of each host device; 0: all cores.
int64_t default_groups(const planner::Plan& plan, int64_t threads);

}  // namespace cleave::runtime
