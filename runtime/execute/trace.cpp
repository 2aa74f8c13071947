// SPDX-License-Identifier: Apache-2.0
// The Trace Event Format that Perfetto and chrome://tracing read: complete events ("ph": "X") in
// microseconds, one process with a thread a device.
#include "runtime/execute/trace.h"

#include <nlohmann/json.hpp>

#include "planner/machine/vendor.h"
#include "planner/plan/plan_queries.h"

namespace cleave::runtime {

namespace {

using Json = nlohmann::ordered_json;

std::string_view category(const planner::Step& step) {
    return step.compute() ? "compute" : step.transfer() ? "transfer" : "collective";
}

}  // namespace

std::string trace_to_perfetto(const Trace& trace, const planner::Plan& plan) {
    Json events = Json::array();
    for (size_t d = 0; d < plan.machine.devices.size(); ++d) {
        events.push_back({{"ph", "M"},
                          {"name", "thread_name"},
                          {"pid", 0},
                          {"tid", d},
                          {"args", {{"name", plan.machine.devices[d].name}}}});
    }
    for (const TraceEvent& event : trace.events) {
        if (!event.step.valid()) {
            events.push_back({{"ph", "X"},
                              {"name", event.is_prefill ? "prefill" : "decode"},
                              {"cat", "pass"},
                              {"pid", 0},
                              {"tid", event.device.value},
                              {"ts", static_cast<double>(event.start_ns) / 1000.0},
                              {"dur", static_cast<double>(event.end_ns - event.start_ns) / 1000.0},
                              {"args", {{"pass", event.pass}, {"bytes", event.bytes}}}});
            continue;
        }
        const planner::Step& step = plan.phase(event.is_prefill).steps[event.step.index()];
        events.push_back(
            {{"ph", "X"},
             {"name", step_label(plan, event.is_prefill, event.step)},
             {"cat", category(step)},
             {"pid", 0},
             {"tid", event.device.value},
             {"ts", static_cast<double>(event.start_ns) / 1000.0},
             {"dur", static_cast<double>(event.end_ns - event.start_ns) / 1000.0},
             {"args", {{"pass", event.pass}, {"layer", step.layer}, {"bytes", event.bytes}}}});
        if (!event.path) continue;
        Json& args = events.back()["args"];
        args["transport"] = planner::path_name(*event.path);
        // A card replays decode in runs between these; with a trace it goes step by step.
        if (!event.is_prefill && *event.path != planner::Path::kPeer &&
            planner::is_card(plan.machine.device(event.device).kind))
            args["captured"] = false;
    }
    return Json{{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}}.dump();
}

}  // namespace cleave::runtime
