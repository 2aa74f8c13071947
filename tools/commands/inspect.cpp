// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/ask/diff.h"
#include "planner/plan/plan_queries.h"
#include "tools/cli/csv_flags.h"
#include "tools/cli/files.h"
#include "tools/cli/hosts.h"
#include "tools/cli/planning.h"
#include "tools/cli/terminal.h"
#include "tools/commands/commands.h"
#include "tools/commands/diff_json.h"
#include "tools/inspect/inspection.h"
#include "tools/inspect/page_data.h"
#include "tools/inspect/svg.h"
#include "tools/inspect/sweep_file.h"
#include "tools/inspect/trace_file.h"

namespace cleave::tools {
namespace {

struct InspectArguments {
    runtime::Drivers& drivers;
    ModelFlags model;
    PlanFlags plan;
    std::string html, trace, against, sweep;
    std::vector<std::string> svg;   // [grid=|machine=]FILE
    std::vector<std::string> show;  // parts of the text
    CsvFlags csv;
    int make = 0;  // from 1; 0: not given
    bool json = false;
};

// The plan of --against, as it is.
planner::Plan other_plan(const InspectArguments& flags) {
    ModelFlags other;
    other.model = flags.against;
    LoadedModel model = load_model(other, {});
    if (!model.plan)
        throw UserError(
            "--against {}: no .plan file; save the other plan with `cleave plan ... -o "
            "OTHER.plan`, then give that file",
            flags.against);
    const planner::Workload workload = model.plan->workload;
    return plan_from_flags(std::move(model), {}, {}, workload, flags.drivers);
}

// The make of --make, as a plan of its own; without it all, whose first is shown.
planner::Plan shown_plan(const InspectArguments& flags, planner::Plan plan) {
    if (flags.make == 0) return plan;
    const std::vector<const planner::Plan*> makes = planner::makes_of(plan);
    const auto number = static_cast<size_t>(flags.make);
    if (number > makes.size())
        throw UserError(
            "--make {}: the plan has {}; --make takes 1 to {}", flags.make,
            makes.size() == 1 ? "one make of replicas" : fmt::format("{} makes", makes.size()),
            makes.size());
    planner::Plan make = *makes[number - 1];
    make.others.clear();
    return make;
}

// One of --svg.
struct Picture {
    std::string file;
    std::string (*draw)(const Inspection&);
};
std::vector<Picture> pictures(const InspectArguments& flags) {
    std::vector<Picture> list;
    for (const std::string& text : flags.svg) {
        if (text.starts_with("grid="))
            list.push_back({text.substr(5), grid_svg});
        else if (text.starts_with("machine="))
            list.push_back({text.substr(8), machine_svg});
        else
            list.push_back({text, plan_svg});
        check_writable("--svg", list.back().file);
    }
    return list;
}

// What has no effect is refused.
void check_flags(const InspectArguments& flags) {
    if (!flags.against.empty() && flags.html.empty() && !flags.json)
        throw UserError("--against {}: it is of the page and of JSON; add --html FILE or --json",
                        flags.against);
    if (flags.make > 1 && (!flags.trace.empty() || !flags.against.empty()))
        throw UserError("--make {}: {} is of the first make; leave one out", flags.make,
                        flags.trace.empty() ? "--against" : "--trace");
    if (!flags.sweep.empty() && flags.html.empty())
        throw UserError("--sweep {}: it is of the page; add --html FILE", flags.sweep);
    if (!flags.show.empty() &&
        (flags.json || !flags.html.empty() || !flags.svg.empty() || flags.csv.given()))
        throw UserError("--show {}: it is of the text; leave out --json, --html, --svg and --csv",
                        fmt::join(flags.show, ","));
}

// Files of all views that were asked for; whether one was.
bool write_views(const InspectArguments& flags, const std::vector<Picture>& svg,
                 const Inspection& inspection, const PageExtras& extras) {
    if (!flags.html.empty()) {
        write_file("--html", flags.html, inspection_page(inspection, extras));
        say("page written to {}\n", flags.html);
    }
    for (const Picture& picture : svg) {
        write_file("--svg", picture.file, picture.draw(inspection));
        say("picture written to {}\n", picture.file);
    }
    if (flags.csv.given()) write_csv(flags.csv, inspection_tables(inspection));
    return !flags.html.empty() || !svg.empty() || flags.csv.given();
}

void run_inspect(const InspectArguments& flags) {
    check_flags(flags);
    if (follows({}, flags.drivers)) return;
    LoadedModel model = load_model(flags.model, flags.plan.dtype);
    if (!flags.html.empty()) check_writable("--html", flags.html);
    const std::vector<Picture> svg = pictures(flags);
    check_csv_flags(flags.csv, flags.json);
    PageExtras extras;
    if (!flags.sweep.empty()) extras.sweep = read_sweep(flags.sweep);
    planner::Workload workload =
        model.plan ? model.plan->workload : workload_from_flags(flags.plan, model);
    const planner::Plan plan = shown_plan(
        flags, plan_from_flags(std::move(model), flags.plan, {}, workload, flags.drivers));
    std::optional<Measured> measured;
    if (!flags.trace.empty())
        measured = compare_with_trace(plan, read_trace(flags.trace, plan), flags.trace);
    Inspection inspection = inspect_plan(plan);
    inspection.measured = std::move(measured);
    std::optional<planner::Plan> other;
    std::optional<Inspection> against;
    if (!flags.against.empty()) {
        against = inspect_plan(other.emplace(other_plan(flags)));
        extras.against = &*against;
        extras.difference = diff_json(planner::diff(plan, *other, "this plan", "the other"));
    }
    const bool written = write_views(flags, svg, inspection, extras);
    if (flags.json)
        show_exactly(inspection_json(inspection, 2, extras.against));
    else if (!written)
        show("{}", inspection_text(inspection, flags.show, terminal_width(), use_color()));
}

}  // namespace

void add_inspect(CLI::App& app, runtime::Drivers& drivers) {
    auto flags = std::make_shared<InspectArguments>(InspectArguments{.drivers = drivers});
    CLI::App* command = app.add_subcommand(
        "inspect", "show a plan in detail: layers, steps, memory, transfers, kernels");
    add_model_flags(*command, flags->model);
    add_plan_flags(*command, flags->plan);
    std::vector<std::string> parts = inspection_parts();
    parts.emplace_back("all");
    command
        ->add_option("--show", flags->show,
                     fmt::format("of the text: {}; joined by commas; default: what fits in 100 "
                                 "lines",
                                 fmt::join(parts, ", ")))
        ->check(CLI::IsMember(parts))
        ->delimiter(',')
        ->allow_extra_args(false)
        ->type_name("PART");
    command
        ->add_option("--html", flags->html,
                     "write one HTML page to look at and click, instead of text")
        ->type_name("FILE");
    command
        ->add_option("--make", flags->make,
                     "of replicas that are not alike: the one to show, with its steps; default: "
                     "1, beside a line for each of the others")
        ->type_name("N")
        ->check(whole_number(1, 1024));
    command
        ->add_option("--trace", flags->trace,
                     "what a run of this plan measured (run --trace FILE), beside the prediction: "
                     "where they differ most, and why")
        ->type_name("FILE.json");
    command
        ->add_option("--against", flags->against,
                     "another .plan file: --html and --json show it beside this plan")
        ->type_name("FILE.plan");
    command
        ->add_option("--sweep", flags->sweep,
                     "what `cleave plan --sweep ... --json` printed: a picture in the page")
        ->type_name("FILE.json");
    command
        ->add_option("--svg", flags->svg,
                     "[grid=|machine=]FILE: layers and devices, or the machine with its links, as "
                     "an SVG picture; without a word both; repeatable")
        ->type_name("FILE")
        ->allow_extra_args(false);
    add_csv_flags(
        *command, flags->csv,
        {"layers", "memory", "kernels", "devices", "steps", "links", "measured", "differences"});
    command->add_flag("--json", flags->json, "JSON on standard output");
    command->footer(
        "Example: cleave inspect llama-3-8b --devices 'sim:h100[0-3]' --tp 2 --pp 2 --html "
        "plan.html");
    command->callback([flags] { run_inspect(*flags); });
}

}  // namespace cleave::tools
