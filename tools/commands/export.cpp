// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/export/model/exporters.h"
#include "runtime/base/errors.h"
#include "tools/cli/files.h"
#include "tools/cli/hosts.h"
#include "tools/cli/planning.h"
#include "tools/cli/spelling.h"
#include "tools/cli/terminal.h"
#include "tools/commands/commands.h"

namespace cleave::tools {
namespace {

struct ExportArguments {
    runtime::Drivers& drivers;
    ModelFlags model;
    PlanFlags plan;
    std::string format;
    std::string output;
    bool json = false;
};

// One file needs no folder: without -o it is the command's output.
void print_single(const ExportArguments& flags, const planner::ExportResult& result) {
    if (result.files.size() != 1 || result.files[0].write)
        throw UserError("--format {} writes {} files: name a folder for them with -o", flags.format,
                        result.files.size());
    show("{}", result.files[0].contents);
    for (const std::string& what : result.not_expressed) say("not expressed: {}\n", what);
}

void run_export(const ExportArguments& flags) {
    if (flags.json && flags.output.empty())
        throw UserError("--json prints the manifest of what -o DIR wrote: add -o DIR");
    const std::vector<planner::Exporter> exporters = planner::all_exporters();
    const planner::Exporter& exporter = planner::find_exporter(exporters, flags.format);
    if (follows({}, flags.drivers)) return;
    LoadedModel model = load_model(flags.model, flags.plan.dtype);
    make_paths_absolute(model.graph);
    planner::Workload workload =
        model.plan ? model.plan->workload : workload_from_flags(flags.plan, model);
    PlanFlags asked = flags.plan;
    asked.whole_layers = asked.whole_layers || (exporter.whole_layers && !model.plan);
    planner::Plan plan = plan_from_flags(std::move(model), asked, {}, workload, flags.drivers);
    name_weight_folders(flags.model, plan);
    planner::ExportResult result = planner::export_plan(exporter, plan);
    for (std::string& what : result.not_expressed) what = spell_for_command_line(what);
    if (flags.output.empty()) return print_single(flags, result);
    for (const planner::ExportFile& file : result.files)
        refuse_input("-o", (std::filesystem::path(flags.output) / file.name).string());
    planner::write_export(flags.format, result, flags.output);
    if (flags.json) {
        show("{}", planner::export_manifest(flags.format, result));
        return;
    }
    for (const planner::ExportFile& file : result.files) show("{}/{}\n", flags.output, file.name);
    for (const auto& command : result.commands) show("run: {}\n", fmt::join(command, " "));
    for (const std::string& what : result.not_expressed) show("not expressed: {}\n", what);
}

std::string format_help() {
    std::string help = "what to write:";
    for (const planner::Exporter& e : planner::all_exporters())
        help += fmt::format("\n{}: {}", e.name, e.writes);
    return help;
}

}  // namespace

void add_export(CLI::App& app, runtime::Drivers& drivers) {
    auto flags = std::make_shared<ExportArguments>(ExportArguments{.drivers = drivers});
    CLI::App* command =
        app.add_subcommand("export", "the plan in the form that another tool reads");
    add_model_flags(*command, flags->model);
    add_plan_flags(*command, flags->plan);
    command->add_option("--format", flags->format, format_help())->type_name("NAME")->required();
    command
        ->add_option("-o,--output", flags->output,
                     "folder for the files and manifest.json; without it, a format of one file "
                     "is printed")
        ->type_name("DIR");
    command->add_flag("--json", flags->json, "the manifest on standard output");
    command->footer(
        "Example: cleave export llama-3-8b --devices 'sim:h100[0-3]' --format dot -o out");
    command->callback([flags] { run_export(*flags); });
}

}  // namespace cleave::tools
