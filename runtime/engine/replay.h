// SPDX-License-Identifier: Apache-2.0
// A trace served by an engine on real devices, in real time: what forecast.h predicts, measured.
// In: a plan, what runs its passes, requests with their arrivals. Out: their ServeReport. Prompts
// are random tokens, the same each time; nothing ends a text before its last token.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "planner/plan/plan.h"
#include "runtime/base/cancel.h"
#include "runtime/engine/pass_runner.h"
#include "runtime/engine/scheduler.h"
#include "runtime/engine/serve_report.h"
#include "runtime/engine/serve_trace.h"

namespace cleave::runtime {

struct ReplayOptions {
    SchedulerOptions scheduler;  // max_queue is not read: all requests of a trace may wait
    const CancelToken* cancel = nullptr;
    // Requests that have ended, of all; from any thread.
    std::function<void(int64_t done, int64_t total)> progress;
};

// `tokens` ids of the vocabulary, random and the same for the same `number`.
std::vector<int32_t> random_prompt(const planner::Plan& plan, int64_t number, int64_t tokens);

// A replica of a plan (planner::replica_plan), and what runs its passes.
struct ReplayedReplica {
    const planner::Plan& plan;
    PassRunner& runner;
};

// Takes as long as the trace's arrivals and its last requests do. Latencies are since the arrivals
// that the trace states. UserError as Engine has it, and for logits that are not numbers; what
// `runner` throws; Cancelled.
ServeReport replay(std::span<const ReplayedReplica> replicas,
                   const std::vector<TraceRequest>& trace, const ReplayOptions& options);
// Of a plan with one replica.
ServeReport replay(const planner::Plan& plan, PassRunner& runner,
                   const std::vector<TraceRequest>& trace, const ReplayOptions& options);

}  // namespace cleave::runtime
