// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "tools/cli/csv_flags.h"
#include "tools/cli/files.h"
#include "tools/cli/hosts.h"
#include "tools/cli/planning.h"
#include "tools/cli/terminal.h"
#include "tools/commands/commands.h"
#include "tools/inspect/inspection.h"
#include "tools/inspect/trace_file.h"

namespace cleave::tools {
namespace {

struct InspectArguments {
    runtime::Drivers& drivers;
    ModelFlags model;
    PlanFlags plan;
    std::string html, trace;
    CsvFlags csv;
    bool json = false;
};

void run_inspect(const InspectArguments& flags) {
    if (follows({}, flags.drivers)) return;
    LoadedModel model = load_model(flags.model, flags.plan.dtype);
    if (!flags.html.empty()) check_writable("--html", flags.html);
    check_csv_flags(flags.csv, flags.json);
    planner::Workload workload =
        model.plan ? model.plan->workload : workload_from_flags(flags.plan, model);
    const planner::Plan plan =
        plan_from_flags(std::move(model), flags.plan, {}, workload, flags.drivers);
    std::optional<Measured> measured;
    if (!flags.trace.empty())
        measured = compare_with_trace(plan, read_trace(flags.trace, plan), flags.trace);
    Inspection inspection = inspect_plan(plan);
    inspection.measured = std::move(measured);
    if (!flags.html.empty()) {
        write_file("--html", flags.html, inspection_page(inspection));
        say("page written to {}\n", flags.html);
    }
    if (flags.csv.given()) write_csv(flags.csv, inspection_tables(inspection));
    if (flags.json)
        fmt::print("{}", inspection_json(inspection));
    else if (flags.html.empty() && !flags.csv.given())
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
                        "write one HTML page, with a timeline, instead of text");
    command->add_option("--trace", flags->trace,
                        "what a run of this plan measured (run --trace FILE), beside the "
                        "prediction: where they differ most, and why");
    add_csv_flags(
        *command, flags->csv,
        {"layers", "memory", "kernels", "devices", "steps", "links", "measured", "differences"});
    command->add_flag("--json", flags->json, "JSON on standard output");
    command->footer(
        "Example: cleave inspect llama-3-8b --devices sim:h100[0-3] --tp 2 --pp 2 --html "
        "plan.html");
    command->callback([flags] { run_inspect(*flags); });
}

}  // namespace cleave::tools
