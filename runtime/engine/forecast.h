// SPDX-License-Identifier: Apache-2.0
// How a plan would serve a trace: the server's own scheduler, with the planner's simulated times in
// place of devices. In: a plan, requests with their arrivals. Out: throughput, latencies, use of
// the KV pool. Deterministic. It has no tokens, so it shares no prefixes. A graph that quantises
// its activations over a whole pass is served as the engine serves it, one request after the other.
// Replicas share the requests as runtime/engine/engine_group.h has them.
#pragma once

#include <vector>

#include "planner/plan/plan.h"
#include "runtime/engine/scheduler.h"
#include "runtime/engine/serve_report.h"
#include "runtime/engine/serve_trace.h"

namespace cleave::runtime {

// `options.groups` 0: as many as planner::groups_in_flight finds, in each replica; the report has
// the first one's. Its stage_busy is of the stages of all replicas, one after the other. UserError
// as Scheduler has it.
ServeReport forecast(const planner::Plan& plan, const std::vector<TraceRequest>& trace,
                     SchedulerOptions options);

}  // namespace cleave::runtime
