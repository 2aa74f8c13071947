// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "planner/plan/plan_queries.h"
#include "runtime/base/errors.h"
#include "runtime/base/thread_team.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/forecast.h"
#include "runtime/engine/replay.h"
#include "runtime/generate/generate.h"
#include "runtime/generate/score.h"
#include "tools/cli/files.h"
#include "tools/cli/hosts.h"
#include "tools/cli/logit_check.h"
#include "tools/cli/planning.h"
#include "tools/cli/prompts.h"
#include "tools/cli/sampling_flags.h"
#include "tools/cli/terminal.h"
#include "tools/cli/text_stream.h"
#include "tools/commands/commands.h"
#include "tools/commands/opened_replicas.h"
#include "tools/commands/run_tensors.h"
#include "tools/commands/serving.h"

namespace cleave::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kDefaultNewTokens = 128;
constexpr const char* kServeTrace = "--serve-trace";

struct RunArguments {
    runtime::Drivers& drivers;
    ModelFlags model;
    PlanFlags plan;
    RunFlags run;
    PromptFlags prompt;
    TensorFlags tensors;
    int64_t max_new_tokens = 0;  // 0: kDefaultNewTokens, or what the context leaves
    std::string input;           // "-"
    SamplingFlags sampling;
    std::optional<int32_t> logprobs;
    std::vector<std::string> stop;
    bool ignore_eos = false, json = false, check = false, quiet = false, step_by_step = false;
    std::string score_file, dump_logits, trace, gpu_compiler;
    ServeFlags serve;
};

struct Ready {
    LoadedModel model;
    std::unique_ptr<runtime::Tokenizer> tokenizer;
    std::string no_tokenizer;
    std::vector<std::vector<int32_t>> prompts;
};

bool needs_all_logits(const RunArguments& flags) {
    return !flags.dump_logits.empty() || !flags.score_file.empty() || flags.check;
}

// The plan of a run: as many slots as prompts, logits of every token where the flags want them.
planner::Plan make_run_plan(const RunArguments& flags, Ready& ready) {
    planner::Workload workload;
    PlanFlags plan = flags.plan;
    if (ready.model.plan) {
        workload = ready.model.plan->workload;
    } else {
        if (plan.batch == 0 && plan.concurrency == 0)
            plan.batch = std::max<int64_t>(1, static_cast<int64_t>(ready.prompts.size()));
        workload = workload_from_flags(plan, ready.model);
        int64_t longest = 1;
        for (const auto& p : ready.prompts)
            longest = std::max(longest, static_cast<int64_t>(p.size()));
        if (!ready.prompts.empty() && longest < workload.context) workload.prompt_tokens = longest;
        workload.all_logits = needs_all_logits(flags);
    }
    const bool generates = flags.score_file.empty() && flags.serve.trace.empty();
    if (!ready.model.plan && !generates && plan.replicas.empty()) plan.replicas = "1";
    planner::Plan made =
        plan_from_flags(std::move(ready.model), plan, flags.run, workload, flags.drivers);
    name_weight_folders(flags.model, made);
    return made;
}

void check_lengths(const RunArguments& flags, const planner::Plan& plan,
                   const std::vector<std::vector<int32_t>>& prompts, int64_t max_positions) {
    const int64_t context = plan.workload.context;
    const std::string fix =
        max_positions > context
            ? fmt::format("shorten it, or raise --context (the model's limit is {})", max_positions)
            : std::string("shorten it: the model ends there");
    for (const auto& p : prompts) {
        auto length = static_cast<int64_t>(p.size());
        if (length + std::max<int64_t>(1, flags.max_new_tokens) > context)
            throw UserError("the prompt's {} tokens{} exceed the context of {}: {}", length,
                            flags.max_new_tokens
                                ? fmt::format(" and {} new ones", flags.max_new_tokens)
                                : " and a new one",
                            context, fix);
    }
}

int64_t new_tokens(const RunArguments& flags, const planner::Plan& plan,
                   const std::vector<std::vector<int32_t>>& prompts) {
    if (flags.max_new_tokens > 0) return flags.max_new_tokens;
    int64_t room = plan.workload.context;
    for (const auto& p : prompts)
        room = std::min(room, plan.workload.context - static_cast<int64_t>(p.size()));
    return std::min(kDefaultNewTokens, room);
}

// Call within an Interruptible.
std::unique_ptr<runtime::Session> open_session(planner::Plan& plan, const RunArguments& flags) {
    ProgressBar compile("compiling kernels"), upload("loading weights");
    runtime::SessionOptions options = session_options(flags.run, flags.drivers);
    options.compile.gpu_compiler = flags.gpu_compiler;
    options.step_by_step = flags.step_by_step;
    options.compile.progress = [&](int done, int total) { compile.update(done, total); };
    options.upload_progress = [&](int64_t done, int64_t total) {
        upload.update(done, total, true);
    };
    options.record_trace = !flags.trace.empty();
    return std::make_unique<runtime::Session>(plan, options);
}

OpenedReplicas open_replicas(const planner::Plan& plan, RunArguments flags) {
    OpenedReplicas opened;
    const auto replicas = static_cast<int>(plan.num_replicas());
    if (replicas > 1) {
        if (!flags.trace.empty())
            throw UserError(
                "--trace {}: a trace is of one replica, and the plan has {}; plan with --replicas "
                "1",
                flags.trace, replicas);
        const int threads = flags.run.threads > 0 ? flags.run.threads : runtime::available_cores();
        flags.run.threads = std::max(1, threads / replicas);
    }
    for (int r = 0; r < replicas; ++r) opened.plans.push_back(planner::replica_plan(plan, r));
    for (planner::Plan& one : opened.plans) opened.sessions.push_back(open_session(one, flags));
    return opened;
}

void write_logits(const std::string& path, const std::vector<runtime::SequenceResult>& sequences) {
    std::vector<float> all;
    for (const runtime::SequenceResult& s : sequences)
        all.insert(all.end(), s.logits.begin(), s.logits.end());
    write_file("--dump-logits", path,
               {reinterpret_cast<const char*>(all.data()), all.size() * sizeof(float)});
}

Json logprob_json(const runtime::TokenLogprob& token) {
    return {{"id", token.id}, {"logprob", token.logprob}};
}

Json sequence_json(const std::vector<int32_t>& prompt, const runtime::SequenceResult& result,
                   const std::string& text) {
    Json json{{"prompt_ids", prompt}, {"token_ids", result.token_ids}, {"text", text}};
    for (const runtime::TokenLogprobs& token : result.logprobs) {
        Json one = logprob_json(token.chosen);
        one["rank"] = token.rank;
        one["top"] = Json::array();
        for (const runtime::TokenLogprob& top : token.top) one["top"].push_back(logprob_json(top));
        json["logprobs"].push_back(one);
    }
    return json;
}

Json result_json(const OpenedReplicas& opened, const std::vector<std::vector<int32_t>>& prompts,
                 const runtime::GenerateResult& result, const std::vector<std::string>& texts) {
    Json json;
    if (prompts.size() == 1) {
        json = sequence_json(prompts[0], result.sequences[0], texts[0]);
    } else {
        json["sequences"] = Json::array();
        for (size_t i = 0; i < prompts.size(); ++i)
            json["sequences"].push_back(sequence_json(prompts[i], result.sequences[i], texts[i]));
    }
    json["prefill_ms"] = result.prefill_ms;
    json["decode_ms_per_token"] = result.decode_ms_per_token;
    json["tokens_per_second"] = result.tokens_per_second;
    json["devices"] = Json::array();
    for (const planner::Plan& plan : opened.plans)
        for (const planner::DeviceInfo& d : plan.machine.devices) json["devices"].push_back(d.name);
    if (opened.plans.size() > 1) json["replicas"] = opened.plans.size();
    const auto total = [&](auto value) { return opened.sum(value); };
    json["transferred_bytes"] = total([](const auto& s) { return s.transferred_bytes(); });
    json["loading"] = {{"bytes", total([](const auto& s) { return s.loading().bytes; })},
                       {"seconds", total([](const auto& s) { return s.loading().seconds; })}};
    if (const runtime::Session::Network network = opened.sessions[0]->network();
        network.message_bytes > 0)
        json["network"] = {{"payload_bytes", network.payload_bytes},
                           {"message_bytes", network.message_bytes}};
    const runtime::OverlapReport overlap = opened.sessions[0]->overlap();
    json["overlap"] = {{"launches", total([](const auto& s) { return s.overlap().launches; })},
                       {"reasons", overlap.reasons}};
    json["peak_memory_bytes"] = Json::object();
    for (const auto& session : opened.sessions) {
        json["peak_memory_bytes"].update(Json(session->peak_memory_bytes()));
        for (const runtime::LibraryMemory& m : session->library_memory())
            json["collectives"].push_back({{"device", m.device},
                                           {"library", m.library},
                                           {"reserved_bytes", m.reserved_bytes},
                                           {"taken_bytes", m.taken_bytes}});
    }
    return json;
}

// Runs the same prompts on one host device and compares logits.
LogitDifference host_difference(const RunArguments& flags, const planner::Plan& plan,
                                const std::vector<std::vector<int32_t>>& prompts,
                                const runtime::GenerateOptions& options,
                                const runtime::GenerateResult& result) {
    LoadedModel model;
    model.graph = plan.graph;
    PlanFlags of_host = flags.plan;
    of_host.devices = "host";
    of_host.machine_file.clear();
    of_host.tensor_parallel = of_host.pipeline_stages = 0;
    of_host.pins.clear();
    RunArguments quiet = flags;
    quiet.trace.clear();
    quiet.run.simt_seed.reset();
    of_host.alone = true;
    of_host.objective = "latency";
    of_host.replicas.clear();
    of_host.concurrency = 0;
    of_host.max_ttft = of_host.max_tpot = 0;
    planner::Workload workload = plan.workload;
    workload.batch = static_cast<int64_t>(prompts.size());
    planner::Plan host =
        plan_from_flags(std::move(model), of_host, quiet.run, workload, flags.drivers);
    auto session = open_session(host, quiet);
    runtime::GenerateOptions silent = options;
    // As many tokens as the run made: no stop token ends a text here.
    silent.stop_ids.clear();
    std::vector<size_t> made(prompts.size(), 0);
    silent.on_token = [&](size_t sequence, int32_t) {
        return ++made[sequence] < result.sequences[sequence].token_ids.size();
    };
    runtime::GenerateResult expected = runtime::generate(*session, host, prompts, silent);
    LogitDifference difference;
    for (size_t s = 0; s < prompts.size(); ++s) {
        const LogitDifference one =
            compare_logits(result.sequences[s].logits, expected.sequences[s].logits,
                           static_cast<size_t>(plan.graph.config.vocab_size));
        if (!one.reason.empty()) return {0, fmt::format("sequence {}: {}", s, one.reason)};
        difference.largest = std::max(difference.largest, one.largest);
    }
    return difference;
}

void demand_numbers(const LogitDifference& difference) {
    if (!difference.reason.empty())
        throw UserError("--check: the logits cannot be compared with the host's: {}",
                        difference.reason);
}

void write_trace(const RunArguments& flags, const planner::Plan& plan,
                 const runtime::Session& session) {
    std::string json = runtime::trace_to_perfetto(session.trace(), plan);
    write_file("--trace", flags.trace, json);
}

void run_score(const RunArguments& flags, Ready& ready) {
    std::error_code ignored;
    std::ifstream file(flags.score_file);
    if (!file || !std::filesystem::is_regular_file(flags.score_file, ignored))
        throw UserError("--score {}: no such text file", flags.score_file);
    if (!ready.tokenizer) throw UserError("--score needs a tokenizer: {}", ready.no_tokenizer);
    std::stringstream text;
    text << file.rdbuf();
    std::vector<int32_t> tokens = ready.tokenizer->encode(text.str());
    check_token_ids(tokens, ready.model);
    if (tokens.size() < 2)
        throw UserError("{}: too short to score: it has {} tokens", flags.score_file,
                        tokens.size());
    planner::Plan plan = make_run_plan(flags, ready);
    Interruptible interruptible;
    auto session = open_session(plan, flags);
    runtime::ScoreResult score = runtime::score(*session, plan, tokens);
    if (flags.json)
        fmt::print(
            "{}\n",
            Json{{"tokens", score.tokens}, {"nll", score.nll}, {"perplexity", score.perplexity}}
                .dump(2));
    else
        show("{} tokens, {:.4f} nats a token, perplexity {:.3f}\n", score.tokens, score.nll,
             score.perplexity);
}

// The trace on the plan's devices, beside what its costs say of it.
void run_serve_trace(const RunArguments& flags, Ready& ready) {
    const std::vector<runtime::TraceRequest> trace = trace_from_flag(flags.serve, kServeTrace);
    planner::Plan plan = make_run_plan(flags, ready);
    runtime::ReplayOptions options;
    options.scheduler = scheduler_options(flags.serve, plan);
    options.scheduler.groups = runtime::default_groups(plan, flags.run.threads);
    options.cancel = &cancel_token();
    const runtime::ServeReport predicted = runtime::forecast(plan, trace, options.scheduler);
    Interruptible interruptible;
    auto session = open_session(plan, flags);
    runtime::SessionRunner runner(*session);
    runtime::ServeReport measured;
    {
        ProgressBar requests("requests served");
        options.progress = [&](int64_t done, int64_t total) { requests.update(done, total); };
        measured = runtime::replay(plan, runner, trace, options);
    }
    if (!flags.trace.empty()) write_trace(flags, plan, *session);
    show_replay(plan, predicted, measured, flags.json);
}

void print_summary(const OpenedReplicas& opened, const runtime::GenerateResult& result) {
    size_t tokens = 0;
    for (const auto& s : result.sequences) tokens += s.token_ids.size();
    const auto bytes = opened.sum([](const auto& s) { return s.loading().bytes; });
    const double seconds = opened.sum([](const auto& s) { return s.loading().seconds; });
    size_t devices = 0;
    for (const planner::Plan& plan : opened.plans) devices += plan.machine.devices.size();
    const size_t replicas = opened.plans.size();
    say("{} of weights loaded in {:.2f} s, {}/s\n", format_bytes(bytes), seconds,
        format_bytes(static_cast<int64_t>(static_cast<double>(bytes) / std::max(seconds, 1e-9))));
    say("{}\n",
        fmt::format("{} tokens on {} device{}{}: prefill {:.1f} ms, {:.2f} ms a token ({:.0f} "
                    "tokens/s), {} moved between devices",
                    tokens, devices, devices == 1 ? "" : "s",
                    replicas > 1 ? fmt::format(" in {} replicas", replicas) : "", result.prefill_ms,
                    result.decode_ms_per_token, result.tokens_per_second,
                    format_bytes(opened.sum([](const auto& s) { return s.transferred_bytes(); }))));
    for (const auto& session : opened.sessions)
        for (const runtime::LibraryMemory& m : session->library_memory())
            say("{} took {} of {}; the plan keeps {} for it\n", m.library,
                format_bytes(m.taken_bytes), m.device, format_bytes(m.reserved_bytes));
}

void run_generate(const RunArguments& flags, Ready& ready) {
    std::vector<int32_t> stops =
        flags.ignore_eos ? std::vector<int32_t>{} : stop_ids(ready.model, ready.tokenizer.get());
    const int64_t max_positions = ready.model.max_positions;
    planner::Plan plan = make_run_plan(flags, ready);
    check_lengths(flags, plan, ready.prompts, max_positions);
    const runtime::SamplingOptions sampling = sampling_options(flags.sampling);
    runtime::check_sampling(sampling, plan.graph.config.vocab_size);
    Interruptible interruptible;
    OpenedReplicas opened = open_replicas(plan, flags);

    const bool print_text = !flags.json && ready.tokenizer && ready.prompts.size() == 1;
    std::vector<TextStream> streams;
    for (size_t i = 0; ready.tokenizer && i < ready.prompts.size(); ++i)
        streams.emplace_back(*ready.tokenizer, ready.prompts[i], flags.stop, print_text);
    runtime::GenerateOptions options;
    options.max_new_tokens = new_tokens(flags, plan, ready.prompts);
    options.sampling = sampling;
    options.logprobs = flags.logprobs;
    options.stop_ids = stops;
    options.keep_logits = needs_all_logits(flags);
    options.cancel = &cancel_token();
    options.on_token = [&](size_t sequence, int32_t token) {
        if (streams.empty()) return true;
        if (std::find(stops.begin(), stops.end(), token) != stops.end())
            return true;  // shown as the end, not as text
        return streams[sequence].push(token);
    };
    if (print_text && !flags.prompt.chat && !flags.prompt.prompts.empty())
        show_generated(dim(flags.prompt.prompts[0]));
    flush_output();
    runtime::GenerateResult result = runtime::generate(opened.all(), ready.prompts, options);
    std::vector<std::string> texts(ready.prompts.size());
    for (size_t i = 0; i < streams.size(); ++i) {
        streams[i].finish();
        texts[i] = streams[i].text();
    }
    if (!flags.dump_logits.empty()) write_logits(flags.dump_logits, result.sequences);
    if (!flags.trace.empty()) write_trace(flags, opened.plans[0], *opened.sessions[0]);
    if (flags.json) {
        Json json = result_json(opened, ready.prompts, result, texts);
        LogitDifference difference;
        if (flags.check) {
            difference = host_difference(flags, plan, ready.prompts, options, result);
            json["check_max_difference"] = difference.largest;
            if (!difference.reason.empty()) {
                json["check_max_difference"] = nullptr;
                json["check_reason"] = difference.reason;
            }
        }
        fmt::print("{}\n", json.dump(2));
        return demand_numbers(difference);
    }
    if (print_text) show("\n");
    flush_output();
    for (size_t i = 0; !print_text && i < result.sequences.size(); ++i)
        show_generated(fmt::format(
            "{}{}\n", ready.prompts.size() > 1 ? bold(fmt::format("[{}] ", i)) : "",
            ready.tokenizer ? texts[i]
                            : fmt::format("{}", fmt::join(result.sequences[i].token_ids, ","))));
    print_summary(opened, result);
    if (flags.check) {
        const LogitDifference difference =
            host_difference(flags, plan, ready.prompts, options, result);
        demand_numbers(difference);
        show("check against host: max logit difference {:.3g}\n", difference.largest);
    }
}

// Flags that would do nothing are refused, not ignored.
void check_flags(const RunArguments& flags) {
    const bool scores = !flags.score_file.empty();
    const bool prompts = !flags.prompt.prompts.empty() || !flags.prompt.input_ids.empty();
    if (scores &&
        (prompts || flags.prompt.chat || !flags.stop.empty() || flags.max_new_tokens > 0 ||
         flags.sampling.given() || flags.logprobs || !flags.dump_logits.empty() || flags.check))
        throw UserError(
            "--score measures a text and generates nothing: leave out prompts and what shapes new "
            "tokens");
    check_serve_flags(flags.serve, kServeTrace);
    const bool serves = !flags.serve.trace.empty();
    if (serves && (scores || prompts || flags.prompt.chat || !flags.prompt.tokenizer.empty() ||
                   !flags.stop.empty() || flags.ignore_eos || flags.max_new_tokens > 0 ||
                   flags.sampling.given() || flags.logprobs || needs_all_logits(flags)))
        throw UserError(
            "{} sends random prompts of the trace's lengths, whose texts end where the trace says: "
            "leave out prompts and what shapes, scores or checks new tokens",
            kServeTrace);
    sampling_options(flags.sampling);  // refuses what does nothing
    if (flags.logprobs && !flags.json)
        throw UserError("--logprobs are a part of the JSON: give --json, too");
    for (const std::string& stop : flags.stop)
        if (stop.empty())
            throw UserError("--stop: the text that ends a sequence must not be empty");
    if (!scores && !serves && flags.plan.batch > 0 &&
        flags.plan.batch != static_cast<int64_t>(std::max(flags.prompt.prompts.size(),
                                                          flags.prompt.input_ids.size())))
        throw UserError(
            "--batch {}: a run's batch is its number of prompts; repeat --prompt or --input-ids "
            "instead",
            flags.plan.batch);
    if (!flags.trace.empty()) check_writable("--trace", flags.trace);
    if (!flags.dump_logits.empty()) check_writable("--dump-logits", flags.dump_logits);
}

// " (node 'x' (Op): why)": why a graph is no language model; empty if that is not known.
std::string what_stops(const importer::Graph& graph) {
    for (const importer::Op& op : graph.ops)
        if (op.kind == importer::OpKind::kOpaque)
            if (const auto& reason = op.as<importer::OpaqueAttrs>().reason; !reason.empty())
                return fmt::format(" ({})", reason);
    return "";
}

void run(const RunArguments& flags) {
    check_flags(flags);
    if (follows(flags.run, flags.drivers)) return;
    Ready ready;
    ready.model = load_model(flags.model, flags.plan.dtype);
    if (ready.model.kind == ModelKind::kShape)
        throw UserError(
            "{}: a shape name has no weights to run; write a model with `cleave model {} -o DIR`, "
            "then run DIR",
            flags.model.model, flags.model.model);
    if (ready.model.plan && ready.model.graph.path.empty())
        throw UserError(
            "{}: this plan was made from a shape name, which has no weights to run; plan an .onnx "
            "file",
            flags.model.model);
    if (takes_tensors(ready.model.graph)) {
        if (!flags.prompt.prompts.empty() || !flags.prompt.input_ids.empty() ||
            !flags.score_file.empty() || !flags.dump_logits.empty() || flags.check ||
            !flags.trace.empty() || !flags.serve.trace.empty() || flags.max_new_tokens > 0 ||
            flags.sampling.given() || flags.logprobs)
            throw UserError(
                "{} is no language model of the Llama family{}: it takes tensors, --tensor "
                "NAME=FILE.npy for each input, and no flag about prompts, tokens or logits",
                flags.model.model, what_stops(ready.model.graph));
        return run_tensors(std::move(ready.model), flags.tensors, flags.plan, flags.run, flags.json,
                           flags.drivers);
    }
    if (flags.tensors.given())
        throw UserError(
            "{} is a language model: give --prompt or --input-ids, not --tensor or --output-dir",
            flags.model.model);
    if (flags.model.weights == "none")
        throw UserError("--weights none: a model without weights can be planned, but not run");
    if (!flags.serve.trace.empty()) return run_serve_trace(flags, ready);
    ready.tokenizer = find_tokenizer(flags.prompt, ready.model, &ready.no_tokenizer);
    if (!flags.score_file.empty()) return run_score(flags, ready);
    if (!flags.prompt.prompts.empty() && !ready.tokenizer)
        throw UserError("--prompt needs a tokenizer: {}", ready.no_tokenizer);
    if (!flags.stop.empty() && !ready.tokenizer)
        throw UserError("--stop needs a tokenizer: {}", ready.no_tokenizer);
    ready.prompts = prompt_ids(flags.prompt, ready.model, ready.tokenizer.get());
    run_generate(flags, ready);
}

}  // namespace

void add_run(CLI::App& app, runtime::Drivers& drivers) {
    auto flags = std::make_shared<RunArguments>(RunArguments{.drivers = drivers});
    CLI::App* command =
        app.add_subcommand("run", "import, plan, compile and run a model in one go");
    add_model_flags(*command, flags->model);
    command->add_option("input", flags->input, "-: the prompt is standard input")
        ->check(CLI::IsMember({"-"}));
    command->add_option("--prompt", flags->prompt.prompts, "text to continue; repeated: a batch")
        ->allow_extra_args(false);
    command
        ->add_option("--input-ids", flags->prompt.input_ids,
                     "token ids 1,2,3 to continue; repeated: a batch")
        ->allow_extra_args(false);
    command
        ->add_option("--max-new-tokens", flags->max_new_tokens,
                     "tokens to generate; default 128, or what the context leaves")
        ->check(whole_number(1, 1 << 30));
    add_sampling_flags(*command, flags->sampling);
    command
        ->add_option(
            "--logprobs", flags->logprobs,
            "with --json: log-probabilities of new tokens, and of N most likely ones at each")
        ->check(whole_number(0, runtime::kMostTopLogprobs));
    command->add_option("--stop", flags->stop, "text that ends a sequence; may be repeated")
        ->allow_extra_args(false);
    command->add_flag("--ignore-eos", flags->ignore_eos, "go on after end-of-sequence tokens");
    command->add_flag("--chat", flags->prompt.chat,
                      "put the prompt into the tokenizer's chat template");
    command->add_option(
        "--tokenizer", flags->prompt.tokenizer,
        "tokenizer.json, tokenizer.model, or their folder; default: beside the model");
    command->add_option("--score", flags->score_file,
                        "print the perplexity of a text file instead");
    command->add_option(
        "--dump-logits", flags->dump_logits,
        "write f32 logits of each prompt token, then of each new token but the last");
    command
        ->add_option("--tensor", flags->tensors.tensors,
                     "NAME=FILE.npy: an input of a graph that is no language model; repeated")
        ->allow_extra_args(false);
    command->add_option("--output-dir", flags->tensors.output_dir,
                        "folder for such a graph's outputs, NAME.npy each");
    command->add_option("--trace", flags->trace, "write what ran when, for Perfetto");
    add_serve_flags(*command, flags->serve, kServeTrace,
                    "serve requests and compare with the plan's prediction");
    command->add_flag("--step-by-step", flags->step_by_step,
                      "GPUs: wait after each step, so that one that fails is named");
    command
        ->add_option("--gpu-compiler", flags->gpu_compiler,
                     "nvrtc, hiprtc or clang, as of 'emit'; simt: for a driver library whose cards "
                     "the CPU imitates")
        ->check(CLI::IsMember({"nvrtc", "hiprtc", "clang", "simt"}));
    command->add_option("--simt-seed", flags->run.simt_seed,
                        "simt devices: threads of a block run in an order drawn from this number, "
                        "the same for the same number; default: by index");
    command->add_flag("--check", flags->check, "compare logits with one host device");
    command->add_flag("--json", flags->json, "JSON on standard output");
    add_plan_flags(*command, flags->plan);
    add_run_flags(*command, flags->run);
    command->footer(
        "Example: cleave run models/bundled --devices host[0-3] --tp 2 --pp 2 --prompt \"Once upon "
        "a time\"");
    command->callback([flags] {
        if (!flags->input.empty()) flags->prompt.prompts.push_back(text_of_input());
        run(*flags);
    });
}

}  // namespace cleave::tools
