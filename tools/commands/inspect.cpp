// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "tools/cli/files.h"
#include "tools/cli/hosts.h"
#include "tools/cli/planning.h"
#include "tools/cli/terminal.h"
#include "tools/commands/commands.h"
#include "tools/inspect/inspection.h"

namespace cleave::tools {
namespace {

struct InspectArguments {
    runtime::Drivers& drivers;
    ModelFlags model;
    PlanFlags plan;
    std::string html, against;
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
            "OTHER.plan`, "
            "then give that file",
            flags.against);
    const planner::Workload workload = model.plan->workload;
    return plan_from_flags(std::move(model), {}, {}, workload, flags.drivers);
}

void run_inspect(const InspectArguments& flags) {
    if (!flags.against.empty() && flags.html.empty() && !flags.json)
        throw UserError("--against {}: it is of the page and of JSON; add --html FILE or --json",
                        flags.against);
    if (follows({}, flags.drivers)) return;
    LoadedModel model = load_model(flags.model, flags.plan.dtype);
    if (!flags.html.empty()) check_writable("--html", flags.html);
    planner::Workload workload =
        model.plan ? model.plan->workload : workload_from_flags(flags.plan, model);
    const planner::Plan plan =
        plan_from_flags(std::move(model), flags.plan, {}, workload, flags.drivers);
    const Inspection inspection = inspect_plan(plan);
    std::optional<planner::Plan> other;
    std::optional<Inspection> against;
    if (!flags.against.empty()) against = inspect_plan(other.emplace(other_plan(flags)));
    const Inspection* beside = against ? &*against : nullptr;
    if (!flags.html.empty()) {
        write_file("--html", flags.html, inspection_page(inspection, beside));
        say("page written to {}\n", flags.html);
    }
    if (flags.json)
        fmt::print("{}", inspection_json(inspection, 2, beside));
    else if (flags.html.empty())
        show("{}", inspection_text(inspection, terminal_width(), use_color()));
}

}  // namespace

void add_inspect(CLI::App& app, runtime::Drivers& drivers) {
    auto flags = std::make_shared<InspectArguments>(InspectArguments{.drivers = drivers});
    CLI::App* command = app.add_subcommand(
        "inspect", "show a plan in detail: layers, steps, memory, transfers, kernels");
    add_model_flags(*command, flags->model);
    add_plan_flags(*command, flags->plan);
    command->add_option("--html", flags->html,
                        "write one HTML page to look at and click, instead of text");
    command->add_option("--against", flags->against,
                        "another .plan file: --html and --json show it beside this plan");
    command->add_flag("--json", flags->json, "JSON on standard output");
    command->footer(
        "Example: cleave inspect llama-3-8b --devices sim:h100[0-3] --tp 2 --pp 2 --html "
        "plan.html");
    command->callback([flags] { run_inspect(*flags); });
}

}  // namespace cleave::tools
