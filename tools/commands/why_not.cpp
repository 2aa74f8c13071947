// SPDX-License-Identifier: Apache-2.0
#include "planner/ask/why_not.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "planner/machine/device_names.h"
#include "tools/commands/commands.h"
#include "tools/commands/questions.h"

namespace cleave::tools {
namespace {

struct WhyNotArguments : QuestionFlags {
    std::string what;
};

void run_why_not(const WhyNotArguments& flags) {
    const Questioned q = plan_in_question(flags, true);
    const planner::WhyNotAnswer a = planner::why_not(q.plan, *q.asked, flags.what);
    Json json{{"model", q.plan.graph.name},
              {"what", a.what},
              {"answer", a.answer},
              {"verdict", planner::verdict_name(a.verdict)},
              {"slower", a.slower},
              {"plan", figures_json(a.plan)},
              {"forced", a.forced ? figures_json(*a.forced) : Json()},
              {"refusal", nullptr}};
    std::vector<const planner::Grounds*> grounds{&a.plan.grounds};
    if (a.forced) grounds.push_back(&a.forced->grounds);
    json["rests_on"] = planner::rests_on(grounds);
    if (a.verdict == planner::Verdict::kNoMemory || a.verdict == planner::Verdict::kForbidden)
        json["refusal"] = outcome_json(a.outcome);
    std::vector<std::pair<std::string, const planner::Figures*>> plans{{"the plan", &a.plan}};
    if (a.forced) plans.emplace_back(flags.what, &*a.forced);
    if (show_data(
            flags.json, flags.csv, json,
            {{"figures", figure_rows(plans)}, {"lacking", outcome_json(a.outcome)["devices"]}}))
        return;
    show_answer(a.answer);
    if (a.forced && a.verdict != planner::Verdict::kSame)
        show_table(figures_table({"the plan", flags.what}, {&a.plan, &*a.forced}));
    if (a.outcome.lacks_memory) {
        planner::TextTable table("<>>>", "  ");
        table.row({"", "needs", "has", "lacks"});
        const auto row = [](const planner::Deficit& d) {
            return std::vector<std::string>{planner::bytes_text(d.needed_bytes),
                                            planner::bytes_text(d.capacity_bytes),
                                            planner::bytes_text(d.deficit_bytes)};
        };
        for (const auto& alike : folded(a.outcome.devices, row)) {
            std::vector<std::string> names;
            for (const planner::Deficit& d : alike) names.push_back(d.device);
            std::vector<std::string> cells = row(alike.front());
            cells.insert(cells.begin(), planner::folded_names(names));
            table.row(std::move(cells));
        }
        table.fold(kMostRows);
        show_table(table);
    }
    show_rests_on(grounds);
}

}  // namespace

void add_why_not(CLI::App& app, runtime::Drivers& drivers) {
    auto flags = std::make_shared<WhyNotArguments>(WhyNotArguments{{.drivers = drivers}, ""});
    CLI::App* command = app.add_subcommand(
        "why-not", "plan what was not chosen, and say what it costs or which rule forbids it");
    add_question_flags(*command, *flags, {"figures", "lacking"});
    command
        ->add_option("WHAT", flags->what,
                     "tp=8, pp=4, tp=4,pp=2, replicas=2, a device that is not used, or a pin, "
                     "layers.0-9=cuda[1]")
        ->required();
    command->footer(
        "Example: cleave why-not llama-3-70b --devices 'sim:h100[0-7]' tp=2\n"
        "         cleave why-not llama.plan 'layers.0-9=sim:h100[1]'");
    command->callback([flags] { run_why_not(*flags); });
}

}  // namespace cleave::tools
