// SPDX-License-Identifier: Apache-2.0
// `--format dot`: the decode steps as a graph in Graphviz's language
// (graphviz.org/doc/info/lang.html). A node for each step, in the cluster of its device (an
// exchange stands between clusters), an edge for each value from the step that makes it to each
// step that reads it.
#include <map>

#include <fmt/format.h>

#include "planner/export/formats.h"
#include "planner/plan/plan_queries.h"

namespace cleave::planner {
namespace {

// A double-quoted identifier: a quote is escaped, and so is the backslash that would escape
// something.
std::string dot_string(std::string_view text) {
    std::string out = "\"";
    for (char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        const auto byte = static_cast<unsigned char>(c);
        out += byte < 0x20 || byte == 0x7f ? ' ' : c;  // a terminal may show the file
    }
    return out + '"';
}

class DotWriter {
public:
    explicit DotWriter(const Plan& plan)
        : plan_(plan), phase_(plan.decode), point_(pass_point(plan, false)) {}

    std::string run() {
        out_ = fmt::format(
            "digraph {} {{\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n",
            dot_string(plan_.graph.name));
        for (size_t d = 0; d < plan_.machine.devices.size(); ++d) cluster(DeviceId(d));
        for (size_t i = 0; i < phase_.steps.size(); ++i)
            if (!phase_.steps[i].compute()) out_ += "  " + node(i);
        edges();
        return out_ + "}\n";
    }

private:
    void cluster(DeviceId device) {
        out_ += fmt::format("  subgraph cluster_{} {{\n    label={};\n", device.index(),
                            dot_string(plan_.machine.device(device).name));
        for (size_t i = 0; i < phase_.steps.size(); ++i) {
            const Compute* c = phase_.steps[i].compute();
            if (c && c->device == device) out_ += "    " + node(i);
        }
        out_ += "  }\n";
    }

    std::string node(size_t i) const {
        const Step& step = phase_.steps[i];
        std::string label = step_kind(step);
        if (const Compute* c = step.compute()) {
            label = fmt::format("{} {}", kernel_kind_name(c->kernel),
                                plan_.graph.op(c->ops.front()).name);
        } else {
            const ValueId value = step_value(plan_, phase_, step);
            label = fmt::format("{} {}, {} bytes", step_implementation(plan_, phase_, step),
                                value.valid() ? plan_.graph.value(value).name : "",
                                step_bytes(step, point_));
        }
        return fmt::format("s{} [label={}{}];\n", i, dot_string(label),
                           step.compute()    ? ""
                           : step.transfer() ? ", shape=cds"
                                             : ", shape=octagon");
    }

    void edges() {
        std::map<PlacedId, size_t> maker;
        for (size_t i = 0; i < phase_.steps.size(); ++i) {
            const Step& step = phase_.steps[i];
            auto from = [&](const std::vector<PlacedId>& inputs) {
                for (PlacedId id : inputs)
                    if (auto found = maker.find(id); found != maker.end())
                        out_ += fmt::format("  s{} -> s{};\n", found->second, i);
            };
            auto to = [&](const std::vector<PlacedId>& outputs) {
                for (PlacedId id : outputs) maker[id] = i;
            };
            if (const Compute* c = step.compute()) from(c->inputs), to(c->outputs);
            if (const Transfer* t = step.transfer()) from({t->source}), to({t->destination});
            if (const Collective* c = step.collective())
                from(c->contributions), from(c->epilogue_inputs), to(c->outputs);
        }
    }

    const Plan& plan_;
    const Phase& phase_;
    PassPoint point_;
    std::string out_;
};

}  // namespace

ExportResult export_dot(const Plan& plan) {
    return {.files = {{"plan.dot", DotWriter(plan).run()}},
            .commands = {{"dot", "-Tsvg", "plan.dot", "-o", "plan.svg"}},
            .not_expressed = {"the prefill steps: the graph is of one decode step"}};
}

}  // namespace cleave::planner
