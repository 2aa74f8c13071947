// SPDX-License-Identifier: Apache-2.0
#include "planner/ask/limits.h"

#include <memory>

#include <fmt/format.h>

#include "tools/commands/commands.h"
#include "tools/commands/questions.h"

namespace cleave::tools {
namespace {

using namespace planner;

std::vector<const Grounds*> grounds_of_all(const LimitsAnswer& a) {
    std::vector<const Grounds*> all{&a.now.grounds};
    for (const Further& f : a.further)
        if (f.then) all.push_back(&f.then->grounds);
    for (const Faster& f : a.faster) all.push_back(&f.grounds);
    return all;
}

Json limits_json(const Plan& plan, const LimitsAnswer& a) {
    Json json{{"model", plan.graph.name},
              {"answer", a.answer},
              {"batch", plan.workload.batch * plan.num_replicas()},
              {"context", plan.workload.context},
              {"now", figures_json(a.now)}};
    json["further"] = Json::array();
    for (const Further& f : a.further)
        json["further"].push_back({{"change", f.change},
                                   {"then", f.then ? figures_json(*f.then) : Json()},
                                   {"slower", f.slower},
                                   {"refusal", f.refusal}});
    json["replace"] = Json::array();
    for (const Faster& f : a.faster) {
        json["replace"].push_back({{"device", f.device},
                                   {"alike", f.alike},
                                   {"objective_ms", in_ms(f.objective_ns)},
                                   {"gain", f.gain}});
        add_grounds(f.grounds, json["replace"].back());
    }
    json["full"] = a.full;
    json["rests_on"] = rests_on(grounds_of_all(a));
    return json;
}

Json limits_rows(const LimitsAnswer& a) {
    Json rows = figure_rows({{"as it is", &a.now}});
    for (const Further& f : a.further) {
        if (f.then)
            rows.push_back(figure_rows({{"with " + f.change, &*f.then}})[0]);
        else
            rows.push_back({{"plan", "with " + f.change}, {"refusal", f.refusal}});
    }
    return rows;
}

void show_further(const LimitsAnswer& a) {
    TextTable table("<>>>>>>", "  ");
    table.row({"", "sequences", "context", "KV tokens", "a token", "", "ends on"});
    const auto row = [&](const std::string& name, const Figures& f, const std::string& slower) {
        table.row({name, std::to_string(f.room.max_sequences * a.now.replicas),
                   std::to_string(f.room.max_context),
                   std::to_string(f.room.kv_tokens * a.now.replicas), milliseconds(f.objective_ns),
                   slower, f.sequences_bound.empty() ? "-" : f.sequences_bound});
    };
    row("the plan", a.now, "");
    for (const Further& f : a.further) {
        if (f.then)
            row("with " + f.change +
                    (f.then->devices == a.now.devices
                         ? ""
                         : ", " + planner::count_text(f.then->devices, "device")),
                *f.then, planner::slower_text(f.slower));
        else
            table.row({"with " + f.change, "-", "-", "-", "-", "not possible", "-"});
    }
    show_table(table);
}

void show_faster(const LimitsAnswer& a) {
    if (a.faster.empty()) return;
    TextTable table("<>>>", "  ");
    table.row({"twice as fast", "alike", "a token", "less"});
    for (const Faster& f : a.faster)
        table.row({f.device, std::to_string(f.alike), milliseconds(f.objective_ns),
                   fmt::format("{:.1f} %", 100 * f.gain)});
    show_table(table);
}

void run_limits(const QuestionFlags& flags) {
    const Questioned q = plan_in_question(flags, false);
    const LimitsAnswer a = planner::limits(q.plan);
    const Json json = limits_json(q.plan, a);
    if (show_data(flags.json, flags.csv, json,
                  {{"limits", limits_rows(a)}, {"replace", json["replace"]}}))
        return;
    for (const std::string& sentence : a.sentences) show_answer(sentence);
    if (!a.now.room.has_kv()) return;
    show_further(a);
    show_faster(a);
    show_rests_on(grounds_of_all(a));
}

}  // namespace

void add_limits(CLI::App& app, runtime::Drivers& drivers) {
    auto flags = std::make_shared<QuestionFlags>(QuestionFlags{.drivers = drivers});
    CLI::App* command = app.add_subcommand(
        "limits",
        "say how many sequences, how long a context and how many KV tokens a plan has "
        "room for, and what goes further");
    add_question_flags(*command, *flags, {"limits", "replace"});
    command->footer("Example: cleave limits llama-3-70b --devices 'sim:h100[0-7]' --batch 16");
    command->callback([flags] { run_limits(*flags); });
}

}  // namespace cleave::tools
