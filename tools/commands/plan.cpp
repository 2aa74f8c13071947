// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "planner/cost_graph/cost_graph.h"
#include "planner/file/plan_file.h"
#include "planner/view/plan_text.h"
#include "runtime/base/errors.h"
#include "runtime/engine/forecast.h"
#include "tools/cli/csv_flags.h"
#include "tools/cli/files.h"
#include "tools/cli/groups.h"
#include "tools/cli/hosts.h"
#include "tools/cli/planning.h"
#include "tools/cli/spelling.h"
#include "tools/cli/terminal.h"
#include "tools/commands/commands.h"
#include "tools/commands/pareto.h"
#include "tools/commands/serving.h"
#include "tools/commands/sweeping.h"

namespace cleave::tools {
namespace {

struct PlanArguments {
    runtime::Drivers& drivers;
    ModelFlags model;
    PlanFlags plan;
    std::string output;
    bool json = false;
    bool all_steps = false;
    bool pass_times = false;
    std::string cost_graph;
    bool contiguous = false, non_contiguous = false;
    double time_limit = 10.0;  // seconds, of the non-contiguous search
    ServeFlags serve;
    std::vector<std::string> sweep;
    bool pareto = false;
    CsvFlags csv;
};

void plan_cost_graph_file(const PlanArguments& flags) {
    planner::CostGraph graph = planner::load_cost_graph(flags.cost_graph);
    planner::CostGraphOptions options;
    options.contiguous = !flags.non_contiguous;
    options.time_limit_seconds = flags.time_limit;
    options.use_metis = !flags.plan.no_metis;
    planner::CostGraphPlan plan = planner::plan_cost_graph(graph, options);
    if (flags.json) {
        show_exactly(planner::cost_graph_plan_to_json(graph, plan) + "\n");
        return;
    }
    show("{}: {} nodes on {} accelerators and {} CPUs, {}\n", graph.path, graph.nodes.size(),
         graph.num_accelerators, graph.num_cpus, plan.contiguous ? "contiguous" : "non-contiguous");
    show("  max-load    {:.6g} ms{}\n", plan.max_load,
         plan.exact ? ", proven optimal among contiguous plans" : "");
    show("  lower bound {:.6g} ms over all plans, gap {:.2f} %\n", plan.lower_bound,
         100 * plan.gap());
    show("  planned in  {:.1f} ms; {}\n", plan.plan_ms, plan.why);
}

void print_pass(const planner::PassNote& note) {
    say("pass {:<16} {:10.3f} ms{}\n", note.pass, static_cast<double>(note.ns) / 1e6,
        note.proved ? ", proved" : "");
}

// Whatever shows one plan says nothing of many.
void check_many_plans(const PlanArguments& flags) {
    if (flags.sweep.empty() && !flags.pareto) return;
    if (!flags.sweep.empty() && flags.pareto)
        throw UserError("--sweep and --pareto each make plans of their own; leave one out");
    const std::pair<bool, const char*> others[] = {{!flags.output.empty(), "-o"},
                                                   {flags.all_steps, "--steps"},
                                                   {flags.pass_times, "--pass-times"},
                                                   {!flags.serve.trace.empty(), "--serve"},
                                                   {!flags.cost_graph.empty(), "--cost-graph"}};
    for (const auto& [given, name] : others)
        if (given)
            throw UserError("{} is of one plan, and {} makes many; leave one out", name,
                            flags.pareto ? "--pareto" : "--sweep");
}

void plan_pareto(const PlanArguments& flags) {
    const planner::Pareto pareto = run_pareto({flags.drivers, flags.model, flags.plan, flags.json});
    if (flags.json) return print_json(pareto_json(pareto));
    if (flags.csv.given()) return write_csv(flags.csv, {{"pareto", pareto_csv(pareto)}});
    show_pareto(pareto);
}

void sweep_plans(const PlanArguments& flags) {
    QuestionFlags question{flags.drivers, flags.model, flags.plan, flags.json};
    const planner::Sweep sweep = run_sweep(question, axes_from_flags(flags.sweep));
    if (flags.json) return print_json(sweep_json(sweep));
    if (flags.csv.given()) write_csv(flags.csv, {{"sweep", sweep_csv(sweep)}});
    if (flags.csv.given()) return;
    show_sweep(sweep);
}

void run_plan(const PlanArguments& flags) {
    check_many_plans(flags);
    if (flags.cost_graph.empty() == flags.model.model.empty())
        throw UserError("plan takes a MODEL or --cost-graph FILE.json, and one of them");
    check_serve_flags(flags.serve, "--serve");
    if (!flags.cost_graph.empty() && !flags.serve.trace.empty())
        throw UserError("--serve: a cost graph takes no requests; give a MODEL");
    if (!flags.cost_graph.empty() && flags.pass_times)
        throw UserError("--pass-times: a cost graph is not planned by passes; give a MODEL");
    if (!flags.cost_graph.empty() && flags.csv.given())
        throw UserError("--csv: a cost graph has no tables; use --json, or give a MODEL");
    if (!flags.cost_graph.empty()) return plan_cost_graph_file(flags);
    if (flags.contiguous || flags.non_contiguous)
        throw UserError(
            "--contiguous and --non-contiguous go with --cost-graph; a model's stages are "
            "contiguous");
    if (flags.json && flags.all_steps)
        throw UserError("--steps shapes the text; --json always has every step");
    check_csv_flags(flags.csv, flags.json);
    if (!flags.sweep.empty()) return sweep_plans(flags);
    if (flags.pareto) return plan_pareto(flags);
    if (flags.csv.given() && !flags.serve.trace.empty())
        throw UserError("--csv: what --serve predicts has no table; leave one out");
    if (follows({}, flags.drivers)) return;
    std::vector<runtime::TraceRequest> trace;
    if (!flags.serve.trace.empty()) trace = trace_from_flag(flags.serve, "--serve");
    LoadedModel model = load_model(flags.model, flags.plan.dtype);
    if (!flags.output.empty()) {
        check_writable("-o", flags.output);
        make_paths_absolute(model.graph);  // the plan may be run from anywhere
    }
    planner::Workload workload =
        model.plan ? model.plan->workload : workload_from_flags(flags.plan, model);
    if (flags.pass_times && model.plan)
        throw UserError(
            "--pass-times: a .plan file is planned already; give the model it was made of");
    planner::PassControl control;
    if (flags.pass_times) control.note = print_pass;
    planner::Plan plan =
        plan_from_flags(std::move(model), flags.plan, {}, workload, flags.drivers, control);
    if (!flags.output.empty()) planner::save_plan(plan, flags.output);
    if (!trace.empty()) {
        const runtime::SchedulerOptions options = scheduler_options(flags.serve, plan);
        return show_forecast(plan, runtime::forecast(plan, trace, options), flags.json);
    }
    if (flags.csv.given()) write_csv(flags.csv, planner::plan_tables(plan));
    if (flags.json) {
        show_exactly(planner::plan_to_json(plan, spell_for_command_line) + "\n");
        return;
    }
    if (flags.csv.given()) return;
    planner::TextOptions options;
    options.color = use_color();
    options.all_steps = flags.all_steps;
    options.width = terminal_width();
    options.spell = spell_for_command_line;
    show("{}", planner::plan_to_text(plan, options));
    if (!flags.output.empty()) say("plan written to {}\n", flags.output);
}

}  // namespace

void add_plan(CLI::App& app, runtime::Drivers& drivers) {
    auto flags = std::make_shared<PlanArguments>(PlanArguments{.drivers = drivers});
    CLI::App* command = app.add_subcommand("plan", "decide what runs where, prove it and show it");
    add_model_flags(*command, flags->model, false);
    add_plan_flags(*command, flags->plan);
    command->add_option("-o,--output", flags->output, "write the plan to FILE.plan")
        ->type_name("FILE.plan");
    command->add_flag("--json", flags->json, "JSON on standard output");
    add_csv_flags(*command, flags->csv, {"devices", "steps", "links"});
    command->add_flag("--steps", flags->all_steps, "print every step of both phases");
    command
        ->add_flag("--pass-times", flags->pass_times,
                   "print each pass of the planner with its time on standard error")
        ->group(kForExperts);
    add_serve_flags(*command, flags->serve, "--serve", "predict how the plan serves requests");
    command
        ->add_option(
            "--sweep", flags->sweep,
            "plan each combination, as a table; may be repeated; axes are " + planner::sweep_axes())
        ->type_name("AXIS=VALUE,...")
        ->allow_extra_args(false)
        ->group(kPlanGroup);
    command
        ->add_flag("--pareto", flags->pareto,
                   "of many users: the plans with most tokens/s a device for each tokens/s a user")
        ->group(kPlanGroup);
    command
        ->add_option("--cost-graph", flags->cost_graph,
                     "plan a bare graph of costs instead of a model")
        ->type_name("FILE.json")
        ->group(kForExperts);
    CLI::Option* contiguous =
        command
            ->add_flag("--contiguous", flags->contiguous,
                       "of a cost graph: devices in an order that every edge follows; the "
                       "default")
            ->group(kForExperts);
    command->add_flag("--non-contiguous", flags->non_contiguous, "of a cost graph: any assignment")
        ->excludes(contiguous)
        ->group(kForExperts);
    command
        ->add_option("--time-limit", flags->time_limit, "of the non-contiguous search; default: 10")
        ->type_name("SECONDS")
        ->check(CLI::PositiveNumber)
        ->group(kForExperts);
    command->footer(
        "Example: cleave plan llama-3-70b --devices 'sim:h100[0-3]' --objective throughput\n"
        "         cleave plan llama-3-70b --devices 'sim:h100[0-7]' --sweep devices=2,4,8 "
        "--sweep batch=1,16");
    command->callback([flags] { run_plan(*flags); });
}

}  // namespace cleave::tools
