// SPDX-License-Identifier: Apache-2.0
#include "tools/inspect/trace_file.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "planner/plan/plan_queries.h"
#include "runtime/base/errors.h"
#include "runtime/base/json_file.h"

namespace cleave::tools {

using namespace planner;

namespace {

using nlohmann::json;

class Reader {
public:
    Reader(const std::string& path, const Plan& plan) : path_(path), plan_(plan) {}

    runtime::Trace read() {
        const json file = parse_json(read_regular_file(path_), "--trace " + path_);
        if (!file.is_object() || !file.contains("otherData") || !file.contains("traceEvents"))
            damaged("it has no \"otherData\" and \"traceEvents\"");
        check_plan(file["otherData"]);
        passes(member(file["otherData"], "passes"));
        if (!file["traceEvents"].is_array()) damaged("\"traceEvents\" is no list");
        for (const json& event : file["traceEvents"]) take(event);
        if (trace_.events.empty()) damaged("it has no step");
        std::ranges::stable_sort(trace_.events, {}, [](const runtime::TraceEvent& e) {
            return std::pair(e.device, e.start_ns);
        });
        return std::move(trace_);
    }

private:
    [[noreturn]] void damaged(const std::string& why) const {
        throw UserError("--trace {}: no trace of a run: {}; write one with `cleave run --trace {}`",
                        path_, why, path_);
    }

    const json& member(const json& object, const char* key) const {
        if (!object.is_object() || !object.contains(key))
            damaged(fmt::format("\"{}\" is missing", key));
        return object[key];
    }
    std::string text(const json& object, const char* key) const {
        const json& value = member(object, key);
        if (!value.is_string()) damaged(fmt::format("\"{}\" is no text", key));
        return value.get<std::string>();
    }
    int64_t number(const json& object, const char* key, int64_t most) const {
        const json& value = member(object, key);
        if (!value.is_number_integer() || value.get<int64_t>() < 0 || value.get<int64_t>() > most)
            damaged(fmt::format("\"{}\" is no whole number from 0 to {}", key, most));
        return value.get<int64_t>();
    }
    // Microseconds as ns. Ranks' clocks may put an event before the begin of the trace.
    int64_t time(const json& object, const char* key) const {
        const json& value = member(object, key);
        if (!value.is_number() || std::fabs(value.get<double>()) > 1e15)
            damaged(fmt::format("\"{}\" is no time", key));
        return std::llround(value.get<double>() * 1e3);
    }

    void check_plan(const json& facts) const {
        if (text(facts, "model_digest") != plan_.graph_digest)
            throw UserError("--trace {}: it is a run of another model, {}; this plan is of {}",
                            path_, text(facts, "model"), plan_.graph.name);
        const auto names = [](const Machine& machine) {
            json devices = json::array();
            for (const DeviceInfo& d : machine.devices) devices.push_back(d.name);
            return devices;
        };
        json devices = names(plan_.machine);
        if (!plan_.copies.empty()) devices = json::array({devices});
        for (const Machine& copy : plan_.copies) devices.push_back(names(copy));
        const json& ran = facts.contains("replicas") ? facts["replicas"] : member(facts, "devices");
        if (ran != devices)
            throw UserError("--trace {}: it is a run on other devices, {}; this plan is on {}",
                            path_, ran.dump(-1, ' ', false, json::error_handler_t::replace),
                            devices.dump(-1, ' ', false, json::error_handler_t::replace));
        if (text(facts, "plan_digest") != runtime::trace_digest(plan_))
            throw UserError(
                "--trace {}: it is a run of another plan, with other steps or types; save the plan "
                "(`cleave plan MODEL -o FILE.plan`), then run and inspect that file",
                path_);
    }

    // Of one number in all replicas, whose passes are taken as those of one.
    int32_t pass_of(int64_t number, int64_t replica) const {
        const int64_t all = number * plan_.num_replicas() + replica;
        if (all > INT32_MAX) damaged(fmt::format("there are more than {} passes", INT32_MAX));
        return static_cast<int32_t>(all);
    }

    void passes(const json& list) {
        if (!list.is_array()) damaged("\"passes\" is no list");
        constexpr int64_t kMost = int64_t{1} << 40;
        for (const json& one : list) {
            const std::string phase = text(one, "phase");
            if (phase != "prefill" && phase != "decode")
                damaged("a pass is neither prefill nor decode");
            runtime::TracePass pass;
            const int64_t replica =
                plan_.copies.empty() ? 0 : number(one, "replica", plan_.num_replicas() - 1);
            pass.number = pass_of(number(one, "pass", INT32_MAX), replica);
            pass.is_prefill = phase == "prefill";
            pass.tokens = std::max<int64_t>(1, number(one, "tokens", kMost));
            pass.outputs = number(one, "outputs", kMost);
            pass.keys = number(one, "keys", kMost);
            is_prefill_[pass.number] = pass.is_prefill;
            trace_.passes.push_back(pass);
        }
    }

    void take(const json& event) {
        if (!event.is_object() || !event.contains("ph") || event["ph"] != "X") return;
        const json& args = member(event, "args");
        if (!args.is_object() || !args.contains("step")) return;
        runtime::TraceEvent one;
        one.pass = pass_of(number(args, "pass", INT32_MAX),
                           number(event, "pid", plan_.num_replicas() - 1));
        const auto pass = is_prefill_.find(one.pass);
        if (pass == is_prefill_.end())
            damaged(fmt::format("pass {} is not in \"passes\"", args["pass"].get<int64_t>()));
        one.is_prefill = pass->second;
        const Phase& phase = plan_.phase(one.is_prefill);
        one.step = StepId(number(args, "step", static_cast<int64_t>(phase.steps.size()) - 1));
        one.device =
            DeviceId(number(event, "tid", static_cast<int64_t>(plan_.machine.devices.size()) - 1));
        const std::vector<DeviceId> members = step_devices(phase, phase.steps[one.step.index()]);
        if (std::ranges::find(members, one.device) == members.end())
            damaged(fmt::format("{} has no part in {}", plan_.machine.device(one.device).name,
                                step_label(plan_, one.is_prefill, one.step)));
        one.start_ns = time(event, "ts");
        one.end_ns = one.start_ns + std::max<int64_t>(0, time(event, "dur"));
        trace_.events.push_back(one);
    }

    const std::string& path_;
    const Plan& plan_;
    std::map<int32_t, bool> is_prefill_;
    runtime::Trace trace_;
};

}  // namespace

runtime::Trace read_trace(const std::string& path, const Plan& plan) {
    return Reader(path, plan).read();
}

}  // namespace cleave::tools
