// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include <fmt/format.h>

#include "planner/plan_file.h"
#include "planner/plan_text.h"
#include "tools/cli/planning.h"
#include "tools/cli/terminal.h"
#include "tools/commands/commands.h"

namespace cleave::tools {
namespace {

struct Flags {
    ModelFlags model;
    PlanFlags plan;
    std::string output;
    bool json = false;
    bool all_steps = false;
};

void run_plan(const Flags& flags) {
    LoadedModel model = load_model(flags.model, flags.plan.dtype);
    planner::Workload workload = model.plan ? model.plan->workload : workload_from_flags(flags.plan, model);
    planner::Plan plan = plan_from_flags(std::move(model), flags.plan, {}, workload);
    if (!flags.output.empty()) planner::save_plan(plan, flags.output);
    if (flags.json) {
        fmt::print("{}\n", planner::plan_to_json(plan));
        return;
    }
    planner::TextOptions options;
    options.color = use_color();
    options.all_steps = flags.all_steps;
    options.width = terminal_width();
    fmt::print("{}", planner::plan_to_text(plan, options));
    if (!flags.output.empty()) fmt::print(stderr, "plan written to {}\n", flags.output);
}

}  // namespace

void add_plan(CLI::App& app) {
    auto flags = std::make_shared<Flags>();
    CLI::App* command = app.add_subcommand("plan", "decide what runs where, prove it and show it");
    add_model_flags(*command, flags->model);
    add_plan_flags(*command, flags->plan);
    command->add_option("-o,--output", flags->output, "write the plan to FILE.plan");
    command->add_flag("--json", flags->json, "JSON on standard output");
    command->add_flag("--steps", flags->all_steps, "print every step of both phases");
    command->footer("Example: cleave plan llama-3-70b --devices sim:h100[0-3] --objective throughput");
    command->callback([flags] { run_plan(*flags); });
}

}  // namespace cleave::tools
