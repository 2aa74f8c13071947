// SPDX-License-Identifier: Apache-2.0
#include "planner/ask/what_if.h"

#include <cstdlib>
#include <memory>

#include <fmt/format.h>

#include "planner/ask/sweep.h"
#include "tools/commands/commands.h"
#include "tools/commands/diff_json.h"

namespace cleave::tools {
namespace {

struct WhatIfArguments : QuestionFlags {
    std::vector<std::string> add, remove, links;
    std::string batch, context, dtype, kv_dtype;
};

int64_t size_flag(const std::string& flag, const std::string& value) {
    if (value.empty()) return 0;
    if (const std::optional<int64_t> size = planner::parse_size(value)) return *size;
    throw UserError("{} {}: expected a whole number of 1 or more, such as 64 or 32k", flag, value);
}

// "nvlink:2x", "nvlink:0.5".
std::pair<std::string, double> link_flag(const std::string& text) {
    const size_t colon = text.find(':');
    std::string factor = colon == std::string::npos ? "" : text.substr(colon + 1);
    if (factor.ends_with('x')) factor.pop_back();
    char* end = nullptr;
    const double times = std::strtod(factor.c_str(), &end);
    if (factor.empty() || *end != 0 || !(times >= 1e-6 && times <= 1e6))
        throw UserError("--link {}: expected KIND:Nx, such as nvlink:2x or network:0.5x", text);
    return {text.substr(0, colon), times};
}

planner::Change change_from_flags(const WhatIfArguments& flags) {
    planner::Change change{.add = flags.add, .remove = flags.remove};
    change.batch = size_flag("--batch", flags.batch);
    change.context = size_flag("--context", flags.context);
    if (!flags.dtype.empty()) change.dtype = dtype_flag("--dtype", flags.dtype);
    if (!flags.kv_dtype.empty()) change.kv_dtype = dtype_flag("--kv-dtype", flags.kv_dtype);
    for (const std::string& text : flags.links) change.links.push_back(link_flag(text));
    if (!change.any())
        throw UserError(
            "what-if changes nothing: give --add, --remove, --batch, --context, --dtype, "
            "--kv-dtype or --link");
    return change;
}

void run_what_if(const WhatIfArguments& flags) {
    const planner::Change change = change_from_flags(flags);
    const Questioned q = plan_in_question(flags, true);
    const planner::WhatIfAnswer a = planner::what_if(q.plan, *q.asked, change);
    Json json{{"model", q.plan.graph.name},
              {"change", planner::change_text(change)},
              {"answer", a.answer},
              {"before", figures_json(a.before)},
              {"after", a.after ? figures_json(*a.after) : Json()},
              {"slower", a.diff ? Json(a.diff->slower) : Json()},
              {"refusal", a.outcome.fits() ? Json() : outcome_json(a.outcome)},
              {"shape_was_freed", a.shape_was_freed}};
    std::vector<const planner::Grounds*> grounds{&a.before.grounds};
    if (a.after) grounds.push_back(&a.after->grounds);
    json["rests_on"] = planner::rests_on(grounds);
    const Json difference = a.diff ? diff_json(*a.diff) : Json{};
    json["moved"] = a.diff ? difference["moved"] : Json::array();
    std::vector<std::pair<std::string, const planner::Figures*>> plans{{"before", &a.before}};
    if (a.after) plans.emplace_back("after", &*a.after);
    if (show_data(flags.json, flags.csv, json,
                  {{"figures", figure_rows(plans)},
                   {"moved", json["moved"]},
                   {"devices", a.diff ? device_rows(difference) : Json::array()},
                   {"lacking", outcome_json(a.outcome)["devices"]}}))
        return;
    show_answer(a.answer);
    if (a.diff)
        show_diff(*a.diff, "before", "after");
    else
        show_table(figures_table({"before"}, {&a.before}));
    show_rests_on(grounds);
}

}  // namespace

void add_what_if(CLI::App& app, runtime::Drivers& drivers) {
    auto flags = std::make_shared<WhatIfArguments>(WhatIfArguments{{.drivers = drivers}});
    CLI::App* command =
        app.add_subcommand("what-if", "plan again with a change, and show both plans side by side");
    add_question_flags(*command, *flags, {"figures", "moved", "devices", "lacking"});
    // These are the change; what they were is the model's default, or a .plan file's.
    for (const char* option : {"--batch", "--context", "--dtype", "--kv-dtype"})
        command->remove_option(command->get_option(option));
    command->add_option("--add", flags->add, "devices more, such as 'sim:h100[8]'; repeatable")
        ->allow_extra_args(false);
    command->add_option("--remove", flags->remove, "devices less; repeatable")
        ->allow_extra_args(false);
    command->add_option("--batch", flags->batch, "so many sequences at once instead");
    command->add_option("--context", flags->context,
                        "a longest sequence of so many tokens instead: 32768, 32k");
    command->add_option("--dtype", flags->dtype, "weights in that type instead");
    command->add_option("--kv-dtype", flags->kv_dtype, "a KV cache in that type instead");
    command
        ->add_option("--link", flags->links,
                     "links of a kind N times as fast, such as nvlink:2x; repeatable")
        ->allow_extra_args(false);
    command->footer(
        "Example: cleave what-if llama-3.1-70b --devices 'sim:h100[0-7]' --context 32k\n"
        "         cleave what-if llama.plan --add 'sim:h100[8]' --link nvlink:2x");
    command->callback([flags] { run_what_if(*flags); });
}

}  // namespace cleave::tools
