// SPDX-License-Identifier: Apache-2.0
// The Trace Event Format that Perfetto and chrome://tracing read: complete events ("ph": "X") in
// microseconds, one process with a thread a device; flows ("s" to "f") bind to the events around
// their times.
#include "runtime/execute/trace.h"

#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "planner/machine/vendor.h"
#include "planner/plan/plan_queries.h"
#include "runtime/base/hash.h"
#include "runtime/execute/predicted_passes.h"

namespace cleave::runtime {

namespace {

using Json = nlohmann::ordered_json;
using planner::DeviceId;

std::string_view event_category(const planner::Step& step) {
    return step.compute() ? "compute" : step.transfer() ? "transfer" : "collective";
}

double us(int64_t ns) { return static_cast<double>(ns) / 1000.0; }

// The events of all replicas.
struct Written {
    Json events = Json::array();
    int64_t flows = 0;
};

// Writes those of one replica.
class PerfettoWriter {
public:
    PerfettoWriter(const ReplicaTrace& of, size_t replica, PredictedPasses* predicted,
                   Written& written)
        : trace_(*of.trace),
          plan_(*of.plan),
          later_ns_(of.later_ns),
          replica_(replica),
          predicted_(predicted),
          written_(written) {
        for (const TracePass& pass : trace_.passes) passes_[pass.number] = &pass;
    }

    void run() {
        for (size_t d = 0; d < plan_.machine.devices.size(); ++d)
            written_.events.push_back({{"ph", "M"},
                                       {"name", "thread_name"},
                                       {"pid", replica_},
                                       {"tid", d},
                                       {"args", {{"name", plan_.machine.devices[d].name}}}});
        for (const TraceEvent& event : trace_.events) add(event);
        for (const auto& [step, members] : exchanges_) add_flows(members);
    }

private:
    Json complete_event(const TraceEvent& event, const std::string& name,
                        std::string_view category) const {
        return {{"ph", "X"},
                {"name", name},
                {"cat", category},
                {"pid", replica_},
                {"tid", event.device.value},
                {"ts", us(event.start_ns + later_ns_)},
                {"dur", us(event.end_ns - event.start_ns)}};
    }

    void add(const TraceEvent& event) {
        if (!event.step.valid()) {
            Json whole = complete_event(event, event.is_prefill ? "prefill" : "decode", "pass");
            whole["args"] = {{"pass", event.pass}, {"received_bytes", event.bytes}};
            written_.events.push_back(std::move(whole));
            return;
        }
        const planner::Phase& phase = plan_.phase(event.is_prefill);
        const planner::Step& step = phase.steps[event.step.index()];
        Json one = complete_event(event, step_label(plan_, event.is_prefill, event.step),
                                  event_category(step));
        one["args"] = arguments(event, phase, step);
        written_.events.push_back(std::move(one));
        if (!step.compute()) exchanges_[{event.pass, event.step}].push_back(&event);
    }

    Json arguments(const TraceEvent& event, const planner::Phase& phase,
                   const planner::Step& step) {
        Json args{{"pass", event.pass}, {"step", event.step.index()}, {"layer", step.layer}};
        const planner::ValueId value = step_value(plan_, phase, step);
        if (value.valid()) args["value"] = plan_.graph.value(value).name;
        if (const auto pass = passes_.find(event.pass); pass != passes_.end()) {
            if (predicted_) {
                const planner::StepSpan& span = predicted_->of(*pass->second)[event.step.index()];
                args["predicted_us"] = us(span.end_ns - span.start_ns);
            }
            args["bytes"] = step_bytes(step, point_of(*pass->second));
        }
        if (!event.path) return args;
        args["received_bytes"] = event.bytes;
        args["transport"] = planner::path_name(*event.path);
        // A card replays decode in runs between these; with a trace it goes step by step.
        if (!event.is_prefill && *event.path != planner::Path::kPeer &&
            planner::is_card(plan_.machine.device(event.device).kind))
            args["captured"] = false;
        return args;
    }

    // From a transfer's source; of a collective from the member that came last.
    void add_flows(const std::vector<const TraceEvent*>& members) {
        if (members.size() < 2) return;
        const TraceEvent& any = *members.front();
        const planner::Phase& phase = plan_.phase(any.is_prefill);
        const planner::Transfer* transfer = phase.steps[any.step.index()].transfer();
        const auto first = std::ranges::max_element(members, {}, [&](const TraceEvent* e) {
            if (!transfer) return e->start_ns;
            return int64_t{e->device == phase.values[transfer->source.index()].device};
        });
        for (auto other = members.begin(); other != members.end(); ++other)
            if (other != first) add_flow(**first, **other, transfer ? "transfer" : "collective");
    }

    void add_flow(const TraceEvent& from, const TraceEvent& to, std::string_view name) {
        const auto flow = [&](const char* phase, const TraceEvent& event, int64_t ns) {
            return Json{{"ph", phase},
                        {"name", name},
                        {"cat", "flow"},
                        {"id", written_.flows},
                        {"pid", replica_},
                        {"tid", event.device.value},
                        {"ts", us(ns + later_ns_)}};
        };
        ++written_.flows;
        written_.events.push_back(flow("s", from, from.start_ns));
        // Inside of the receiver's event, and not before the flow began.
        const int64_t last = std::max(to.start_ns, to.end_ns - 1);
        Json end = flow("f", to, std::clamp(from.start_ns, to.start_ns, last));
        end["bp"] = "e";
        written_.events.push_back(std::move(end));
    }

    const Trace& trace_;
    const planner::Plan& plan_;
    int64_t later_ns_;
    size_t replica_;
    PredictedPasses* predicted_;
    std::map<int32_t, const TracePass*> passes_;
    std::map<std::pair<int32_t, planner::StepId>, std::vector<const TraceEvent*>> exchanges_;
    Written& written_;
};

Json device_names(const planner::Plan& plan) {
    Json names = Json::array();
    for (const planner::DeviceInfo& d : plan.machine.devices) names.push_back(d.name);
    return names;
}

Json facts(std::span<const ReplicaTrace> replicas) {
    const planner::Plan& plan = *replicas.front().plan;
    Json passes = Json::array();
    for (size_t r = 0; r < replicas.size(); ++r)
        for (const TracePass& pass : replicas[r].trace->passes) {
            passes.push_back({{"pass", pass.number},
                              {"phase", pass.is_prefill ? "prefill" : "decode"},
                              {"tokens", pass.tokens},
                              {"outputs", pass.outputs},
                              {"keys", pass.keys}});
            if (replicas.size() > 1) passes.back()["replica"] = r;
        }
    Json facts{{"model", plan.graph.name},
               {"model_digest", plan.graph_digest},
               {"plan_digest", trace_digest(plan)},
               {"devices", device_names(plan)},
               {"passes", std::move(passes)}};
    for (int64_t error : replicas.front().trace->clock_errors_ns)
        facts["clock_error_us"].push_back(us(error));
    if (replicas.size() > 1)
        for (const ReplicaTrace& one : replicas)
            facts["replicas"].push_back(device_names(*one.plan));
    return facts;
}

void add_steps(const planner::Plan& plan, const planner::Phase& phase, Digest& digest) {
    digest.add(static_cast<int64_t>(phase.steps.size()));
    for (const planner::Step& step : phase.steps) {
        digest.add(step_kind(step)).add(step_implementation(plan, phase, step));
        for (DeviceId d : step_devices(phase, step)) digest.add(static_cast<int64_t>(d.index()));
        const planner::ValueId value = step_value(plan, phase, step);
        digest.add(value.valid() ? static_cast<int64_t>(value.index()) : -1);
        if (const planner::Compute* c = step.compute())
            for (planner::OpId op : c->ops) digest.add(static_cast<int64_t>(op.index()));
    }
}

}  // namespace

TracePass size_of_pass(int32_t number, const Batch& batch) {
    TracePass pass{number, batch.is_prefill, batch.num_tokens(), batch.num_outputs(), 0};
    for (int32_t position : batch.positions) pass.keys += position + 1;
    return pass;
}

std::string trace_to_perfetto(const Trace& trace, const planner::Plan& plan,
                              PredictedPasses* predicted) {
    const ReplicaTrace one{&trace, &plan};
    return trace_to_perfetto(std::span(&one, 1), predicted);
}

std::string trace_to_perfetto(std::span<const ReplicaTrace> replicas, PredictedPasses* predicted) {
    Written written;
    for (size_t r = 0; r < replicas.size(); ++r) {
        if (replicas.size() > 1)
            written.events.push_back({{"ph", "M"},
                                      {"name", "process_name"},
                                      {"pid", r},
                                      {"args", {{"name", "replica " + std::to_string(r)}}}});
        PerfettoWriter(replicas[r], r, predicted, written).run();
    }
    // Names come from files: what is not UTF-8 in them is replaced, not refused.
    return Json{{"displayTimeUnit", "ns"},
                {"traceEvents", std::move(written.events)},
                {"otherData", facts(replicas)}}
        .dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string trace_digest(const planner::Plan& plan) {
    Digest digest;
    digest.add(plan.graph_digest);
    for (const planner::DeviceInfo& d : plan.machine.devices) digest.add(d.name);
    for (const planner::WeightShard& shard : plan.weights)
        digest.add(static_cast<int64_t>(shard.dtype));
    digest.add(static_cast<int64_t>(plan.workload.kv_dtype.value_or(DType::kF32)));
    for (bool is_prefill : {true, false}) add_steps(plan, plan.phase(is_prefill), digest);
    return digest.hex();
}

}  // namespace cleave::runtime
