// SPDX-License-Identifier: Apache-2.0
#include "planner/view/json_steps.h"

#include <cstdlib>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "planner/plan/plan_queries.h"

namespace cleave::planner {
namespace {

// Names come from files: what is not UTF-8 in them is replaced, not refused.
std::string json_string(const std::string& text) {
    using Json = nlohmann::json;
    return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Nanoseconds as microseconds: the shortest decimals, one at least.
void append_us(int64_t ns, std::string& out) {
    std::string text =
        fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", std::llabs(ns) / 1000, std::llabs(ns) % 1000);
    while (text.back() == '0' && text[text.size() - 2] != '.') text.pop_back();
    out += text;
}

class StepWriter {
public:
    StepWriter(const Plan& plan, std::string& out) : plan_(plan), out_(out) {
        for (const DeviceInfo& d : plan.machine.devices) devices_.push_back(json_string(d.name));
    }

    void run() {
        out_ += '[';
        for (bool is_prefill : {true, false}) phase(is_prefill);
        out_ += out_.back() == '[' ? "]" : "\n  ]";
    }

private:
    void phase(bool is_prefill) {
        const Phase& phase = plan_.phase(is_prefill);
        const PassPoint point = pass_point(plan_, is_prefill);
        for (size_t i = 0; i < phase.steps.size(); ++i) {
            out_ += out_.back() == '[' ? "\n    {" : ",\n    {";
            step(phase, point, is_prefill, i);
            out_ += "\n    }";
        }
    }

    void step(const Phase& phase, const PassPoint& point, bool is_prefill, size_t i) {
        const Step& s = phase.steps[i];
        ValueId value = step_value(plan_, phase, s);
        field("id", static_cast<int64_t>(i));
        field("phase", is_prefill ? "\"prefill\"" : "\"decode\"");
        field("kind", '"' + step_kind(s) + '"');
        devices("devices", step_devices(phase, s));
        field("value", value.valid() ? json_string(plan_.graph.value(value).name) : "\"\"");
        field("bytes", step_bytes(s, point));
        field("link_bytes", s.link_bytes.at(point));
        key("predicted_us");
        append_us(s.predicted_ns, out_);
        field("implementation", '"' + step_implementation(plan_, phase, s) + '"');
        field("stage", s.stage);
        field("layer", s.layer);
        if (const Compute* c = s.compute()) operators("operators", c->ops);
        if (const Transfer* t = s.transfer()) {
            field("source", devices_[phase.values[t->source.index()].device.index()]);
            field("destination", devices_[phase.values[t->destination.index()].device.index()]);
            field("route", fmt::format("\"{}\"", route_name(plan_, phase, *t)));
        }
        if (const Collective* c = s.collective()) {
            field("op", fmt::format("\"{}\"", collective_op_name(c->op)));
            field("transport", fmt::format("\"{}\"", path_name(c->path)));
            devices("group", c->group);
            operators("epilogue", c->epilogue);
        }
    }

    // The first key of an object follows its brace.
    void key(const char* name) {
        out_ += out_.back() == '{' ? "\n      \"" : ",\n      \"";
        out_ += name;
        out_ += "\": ";
    }

    void field(const char* name, const std::string& json) {
        key(name);
        out_ += json;
    }

    void field(const char* name, int64_t number) {
        key(name);
        fmt::format_to(std::back_inserter(out_), "{}", number);
    }

    // Strings that are JSON already, one a line.
    template <class Items, class Text>
    void list(const char* name, const Items& items, Text text) {
        key(name);
        out_ += '[';
        for (size_t i = 0; i < items.size(); ++i) {
            out_ += i == 0 ? "\n        " : ",\n        ";
            out_ += text(items[i]);
        }
        out_ += items.empty() ? "]" : "\n      ]";
    }

    void devices(const char* name, const std::vector<DeviceId>& ids) {
        list(name, ids, [&](DeviceId id) -> const std::string& { return devices_[id.index()]; });
    }

    void operators(const char* name, const std::vector<OpId>& ids) {
        list(name, ids, [&](OpId id) { return json_string(plan_.graph.op(id).name); });
    }

    const Plan& plan_;
    std::string& out_;
    std::vector<std::string> devices_;  // quoted names
};

}  // namespace

void append_json_steps(const Plan& plan, std::string& out) { StepWriter(plan, out).run(); }

}  // namespace cleave::planner
