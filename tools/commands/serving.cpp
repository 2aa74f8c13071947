// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/serving.h"

#include <functional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "planner/ask/basis.h"
#include "planner/plan/plan_queries.h"
#include "planner/plan/text_table.h"
#include "runtime/base/errors.h"
#include "runtime/base/path_state.h"
#include "runtime/engine/pass_costs.h"
#include "tools/cli/groups.h"
#include "tools/cli/options.h"
#include "tools/cli/planning.h"
#include "tools/cli/prompts.h"
#include "tools/cli/spelling.h"
#include "tools/cli/terminal.h"

namespace cleave::tools {
namespace {

using runtime::ServeReport;
using Json = nlohmann::ordered_json;

constexpr double kMostPassMs = 1e6;

Json report_json(const ServeReport& report) {
    auto both = [](const runtime::Percentiles& p) { return Json{{"p50", p.p50}, {"p99", p.p99}}; };
    Json json{{"requests", report.requests},
              {"refused", report.refused},
              {"refusal", report.refusal},
              {"prompt_tokens", report.prompt_tokens},
              {"output_tokens", report.output_tokens},
              {"seconds", report.seconds},
              {"tokens_per_second", report.tokens_per_second},
              {"first_token_ms", both(report.first_token_ms)},
              {"token_gap_ms", both(report.token_gap_ms)},
              {"request_ms", both(report.request_ms)},
              {"pass_ms", both(report.pass_ms)},
              {"kv_tokens", report.kv_tokens},
              {"most_kv_tokens", report.most_kv_tokens},
              {"mean_kv_use", report.mean_kv_use},
              {"mean_sequences", report.mean_sequences},
              {"passes", report.passes},
              {"token_budget", report.token_budget},
              {"preemptions", report.preemptions},
              {"groups_in_flight", report.groups}};
    if (!report.stage_busy.empty()) json["stage_busy"] = report.stage_busy;
    return json;
}

struct ReportRow {
    const char* name;
    int digits;
    std::function<double(const ServeReport&)> value;
};

std::vector<ReportRow> report_rows() {
    using R = const ServeReport&;
    return {
        {"tokens/s", 1, [](R r) { return r.tokens_per_second; }},
        {"seconds", 3, [](R r) { return r.seconds; }},
        {"first token, ms, p50", 3, [](R r) { return r.first_token_ms.p50; }},
        {"first token, ms, p99", 3, [](R r) { return r.first_token_ms.p99; }},
        {"token gap, ms, p50", 3, [](R r) { return r.token_gap_ms.p50; }},
        {"token gap, ms, p99", 3, [](R r) { return r.token_gap_ms.p99; }},
        {"request, ms, p50", 3, [](R r) { return r.request_ms.p50; }},
        {"request, ms, p99", 3, [](R r) { return r.request_ms.p99; }},
        {"pass, ms, p50", 3, [](R r) { return r.pass_ms.p50; }},
        {"pass, ms, p99", 3, [](R r) { return r.pass_ms.p99; }},
        {"passes", 0, [](R r) { return static_cast<double>(r.passes); }},
        {"preemptions", 0, [](R r) { return static_cast<double>(r.preemptions); }},
        {"sequences at once, mean", 1, [](R r) { return r.mean_sequences; }},
        {"KV tokens in use, most", 0, [](R r) { return static_cast<double>(r.most_kv_tokens); }},
        {"KV pool in use, mean, %", 1, [](R r) { return 100 * r.mean_kv_use; }},
    };
}

// As ServeReport::stage_busy has them: "stage 0", "replica 1 stage 0".
std::vector<std::string> stage_names(const planner::Plan& plan) {
    std::vector<std::string> names;
    int64_t replica = 0;
    for (const planner::Plan* make : planner::makes_of(plan))
        for (int64_t alike = 0; alike < make->num_alike(); ++alike, ++replica)
            for (size_t s = 0; s < make->stages.size(); ++s)
                names.push_back(plan.num_replicas() == 1
                                    ? fmt::format("stage {}", s)
                                    : fmt::format("replica {} stage {}", replica, s));
    return names;
}

// A column of each report; of two, how far the second is from the first.
std::string report_text(const planner::Plan& plan, const std::vector<const ServeReport*>& reports) {
    const ServeReport& first = *reports.front();
    const bool compares = reports.size() > 1;
    std::string text =
        fmt::format("{}: {} requests, {} prompt tokens, {} new tokens\n", plan.graph.name,
                    first.requests, first.prompt_tokens, first.output_tokens);
    text += fmt::format("  {:<24}{:>12}{}\n", "", "predicted",
                        compares ? fmt::format("{:>12}{:>12}", "measured", "ratio") : "");
    for (const ReportRow& row : report_rows()) {
        text += fmt::format("  {:<24}", row.name);
        for (const ServeReport* report : reports)
            text += fmt::format("{:>12.{}f}", row.value(*report), row.digits);
        const double expected = row.value(first);
        if (compares && expected > 0)
            text += fmt::format("{:>11.2f}x", row.value(*reports.back()) / expected);
        text += '\n';
    }
    const std::vector<std::string> stages = stage_names(plan);
    for (size_t s = 0; s < first.stage_busy.size(); ++s)
        text += fmt::format("  {:<24}{:>12.1f}\n", stages.at(s) + " busy, %",
                            100 * first.stage_busy[s]);
    text +=
        fmt::format("passes of at most {} tokens, {} in flight at once; a KV pool of {} tokens\n",
                    first.token_budget, first.groups, first.kv_tokens);
    if (first.refused > 0)
        text += fmt::format("refused: {}; the first: {}\n", first.refused, first.refusal);
    return text;
}

}  // namespace

void add_serve_flags(CLI::App& app, ServeFlags& flags, const std::string& name,
                     const std::string& does) {
    app.add_option(name, flags.trace,
                   does + ": a TRACE.csv, or rate=R,prompt=P,output=O[,requests=N][,seed=S]")
        ->type_name("TRACE")
        ->group(kForExperts);
    app.add_flag("--overcommit", flags.overcommit,
                 fmt::format("with {}: start requests before their last token has room, and "
                             "preempt",
                             name))
        ->group(kForExperts);
    app.add_option("--pass-ms", flags.pass_ms,
                   fmt::format("with {}: as many tokens a pass as take so long by the plan's own "
                               "costs",
                               name))
        ->check(real_number(1e-6, kMostPassMs))
        ->type_name("MS")
        ->group(kForExperts);
}

void check_serve_flags(const ServeFlags& flags, const std::string& name) {
    if (!flags.trace.empty()) return;
    if (flags.overcommit)
        throw UserError("--overcommit goes with {}: it says how the KV pool is shared out", name);
    if (flags.pass_ms > 0)
        throw UserError("--pass-ms goes with {}: it bounds the passes of requests that share them",
                        name);
}

std::vector<runtime::TraceRequest> trace_from_flag(const ServeFlags& flags,
                                                   const std::string& name) {
    const std::string& trace = flags.trace;
    try {
        bool is_rate = trace.find('=') != std::string::npos && !is_there(trace);
        return is_rate ? runtime::trace_at_rate(trace) : runtime::load_trace(trace);
    } catch (const UserError& error) {
        throw UserError("{}: {}", name, error.what());
    }
}

runtime::SchedulerOptions scheduler_options(const ServeFlags& flags, const planner::Plan& plan) {
    if (plan.kv_slabs.empty())
        throw UserError(
            "{} has no KV cache, so it serves no requests; supported are language models with one",
            plan.graph.name);
    runtime::SchedulerOptions options{.groups = 0};
    if (flags.overcommit) options.kv_mode = runtime::KvMode::kOvercommit;
    if (flags.pass_ms > 0)
        options.token_budget = runtime::PassCosts(plan).tokens_within(flags.pass_ms);
    return options;
}

std::unique_ptr<runtime::Session> open_session(planner::Plan& plan, const RunFlags& flags,
                                               runtime::Drivers& drivers) {
    Interruptible interruptible;
    ProgressBar compile("compiling kernels"), upload("loading weights");
    runtime::SessionOptions options = session_options(flags, drivers);
    options.compile.progress = [&](int done, int total) { compile.update(done, total); };
    options.upload_progress = [&](int64_t done, int64_t total) {
        upload.update(done, total, true);
    };
    return std::make_unique<runtime::Session>(plan, options);
}

void check_has_weights(const LoadedModel& model, const ModelFlags& flags, const std::string& does) {
    if (model.kind == ModelKind::kShape || model.graph.path.empty() || flags.weights == "none")
        throw UserError(
            "{}: there are no weights to {}; give the model's folder, or its GGUF or "
            ".onnx file",
            flags.model, does);
}

TextModel load_text_model(const ModelFlags& model, const PlanFlags& plan,
                          const std::string& tokenizer, const std::string& command,
                          const std::string& does) {
    TextModel text;
    text.model = load_model(model, plan.dtype);
    check_has_weights(text.model, model, does);
    std::string no_tokenizer;
    PromptFlags prompt;
    prompt.tokenizer = tokenizer;
    text.tokenizer = find_tokenizer(prompt, text.model, &no_tokenizer);
    if (!text.tokenizer) throw UserError("{} needs a tokenizer: {}", command, no_tokenizer);
    text.template_folder = tokenizer.empty() ? text.model.folder : tokenizer;
    text.chat = runtime::load_chat_template(text.template_folder);
    text.stop_ids = stop_ids(text.model, text.tokenizer.get());
    return text;
}

planner::Plan plan_text_model(TextModel& text, const ModelFlags& model, const PlanFlags& plan,
                              const RunFlags& run, runtime::Drivers& drivers) {
    const planner::Workload workload =
        text.model.plan ? text.model.plan->workload : workload_from_flags(plan, text.model);
    planner::Plan made = plan_from_flags(std::move(text.model), plan, run, workload, drivers);
    name_weight_folders(model, made);
    return made;
}

namespace {

// What joins its nodes, and that times over it were not run; empty in one node.
std::string network_of(const planner::Plan& plan) {
    return planner::network_text(planner::grounds_of(plan));
}

// What the plan's costs rest on.
std::string basis_text(const planner::Plan& plan) {
    std::vector<std::string> lines = planner::basis_lines(plan, spell_for_command_line);
    if (const std::string network = network_of(plan); !network.empty())
        lines.insert(lines.begin(), network);
    std::string text;
    for (const std::string& line : lines)
        text += fmt::format("  {:<10}{}\n", text.empty() ? "rests on" : "",
                            planner::wrapped(line, 12, terminal_width()));
    return text;
}

Json basis_list(const planner::Plan& plan) {
    return Json::parse(planner::basis_json(plan, spell_for_command_line));
}

}  // namespace

void show_forecast(const planner::Plan& plan, const ServeReport& predicted, bool json) {
    if (!json) return show("{}{}", report_text(plan, {&predicted}), basis_text(plan));
    Json result{{"model", plan.graph.name}};
    result.update(report_json(predicted));
    result["basis"] = basis_list(plan);
    if (const std::string network = network_of(plan); !network.empty()) result["network"] = network;
    show("{}\n", result.dump(2));
}

void show_replay(const planner::Plan& plan, const ServeReport& predicted,
                 const ServeReport& measured, bool json) {
    if (!json) return show("{}{}", report_text(plan, {&predicted, &measured}), basis_text(plan));
    show("{}\n", Json{{"model", plan.graph.name},
                      {"predicted", report_json(predicted)},
                      {"measured", report_json(measured)},
                      {"basis", basis_list(plan)}}
                     .dump(2));
}

}  // namespace cleave::tools
