// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "planner/export/model/onnx/check.h"
#include "planner/file/plan_file.h"
#include "planner/view/plan_text.h"
#include "runtime/base/errors.h"
#include "tools/cli/files.h"
#include "tools/cli/spelling.h"
#include "tools/cli/terminal.h"
#include "tools/commands/commands.h"

namespace cleave::tools {
namespace {

using Json = nlohmann::ordered_json;

struct CheckArguments {
    std::string file;
    std::string output;
    bool json = false;
};

void print_json(const planner::AnnotationReport& report) {
    Json json{{"configuration", report.configuration},
              {"nodes", report.num_nodes},
              {"annotated", report.num_annotated},
              {"plan", report.plan ? report.has_embedded_plan ? "embedded" : "completed" : "none"},
              {"findings", Json::array()}};
    for (const planner::AnnotationFinding& f : report.findings)
        json["findings"].push_back({{"node", f.node}, {"kind", f.kind}, {"message", f.message}});
    show_exactly(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void print_text(const planner::AnnotationReport& report) {
    show("configuration '{}': {} of {} nodes annotated\n", report.configuration,
         report.num_annotated, report.num_nodes);
    for (const planner::AnnotationFinding& f : report.findings)
        show("{}: {}: {}\n", f.kind, f.node.empty() ? "the file" : f.node, f.message);
    if (!report.plan) return;
    planner::TextOptions options;
    options.color = use_color();
    options.width = terminal_width();
    show("{}", planner::plan_to_text(*report.plan, options));
}

void run_check(const CheckArguments& flags) {
    if (!flags.output.empty()) check_writable("-o", flags.output);
    planner::AnnotationReport report = planner::check_annotations(flags.file);
    for (planner::AnnotationFinding& f : report.findings)
        f.message = spell_for_command_line(f.message);
    if (flags.json)
        print_json(report);
    else
        print_text(report);
    if (!report.findings.empty())
        throw UserError("{}: {} findings in its annotations; each is named above", flags.file,
                        report.findings.size());
    if (!flags.output.empty()) {
        refuse_input("-o", flags.output);
        planner::save_plan(*report.plan, flags.output);
    }
}

}  // namespace

void add_check(CLI::App& app) {
    auto flags = std::make_shared<CheckArguments>();
    CLI::App* command = app.add_subcommand(
        "check", "check the multi-device annotations of an ONNX file, and rebuild their plan");
    command->add_option("FILE", flags->file, "an .onnx file")->required();
    command->add_option("-o,--output", flags->output, "write the rebuilt plan to FILE.plan")
        ->type_name("FILE.plan");
    command->add_flag("--json", flags->json, "findings as JSON on standard output");
    command->footer("Example: cleave check annotated.onnx");
    command->callback([flags] { run_check(*flags); });
}

}  // namespace cleave::tools
