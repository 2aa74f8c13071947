// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "runtime/base/errors.h"
#include "runtime/generate/logprobs.h"
#include "tools/cli/files.h"
#include "tools/cli/groups.h"
#include "tools/cli/hosts.h"
#include "tools/cli/planning.h"
#include "tools/commands/commands.h"
#include "tools/commands/run_work.h"

namespace cleave::tools {
namespace {

// Flags that would do nothing are refused, not ignored.
void check_outputs(const RunArguments& flags) {
    if (!flags.trace.empty()) check_writable("--trace", flags.trace);
    if (!flags.dump_logits.empty()) check_writable("--dump-logits", flags.dump_logits);
}

void check_flags(const RunArguments& flags) {
    const bool scores = !flags.score_file.empty();
    const bool prompts = !flags.prompt.prompts.empty() || !flags.prompt.input_ids.empty();
    if (scores && (prompts || flags.prompt.chat || !flags.stop.empty() ||
                   flags.max_new_tokens > 0 || flags.sampling.given() || flags.logprobs ||
                   !flags.dump_logits.empty() || !flags.check.empty()))
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
    check_outputs(flags);
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
    note_threads(flags.run);
    Ready ready;
    ready.model = load_model(flags.model, flags.plan.dtype);
    if (ready.model.kind == ModelKind::kShape)
        throw UserError(
            "{}: a shape has no weights to run; give the model's folder, or its GGUF or .onnx file "
            "(to measure times alone, `cleave model {} -o DIR` writes one with random weights)",
            flags.model.model, flags.model.model);
    if (ready.model.plan && ready.model.graph.path.empty())
        throw UserError(
            "{}: this plan was made from a shape, which has no weights to run; plan the model's "
            "folder, or its GGUF or .onnx file",
            flags.model.model);
    if (takes_tensors(ready.model.graph)) {
        if (!flags.prompt.prompts.empty() || !flags.prompt.input_ids.empty() ||
            !flags.score_file.empty() || !flags.dump_logits.empty() || !flags.check.empty() ||
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
    check_outputs(flags);  // now with what was read
    run_generate(flags, ready);
}

void add_text_flags(CLI::App& command, RunArguments& flags) {
    command.add_option("input", flags.input, "-: the prompt is standard input")
        ->check(CLI::IsMember({"-"}));
    add_prompt_flags(command, flags.prompt);
    command
        .add_option("--max-new-tokens", flags.max_new_tokens,
                    "tokens to generate; default: 128, or what the context leaves")
        ->check(whole_number(1, 1 << 30))
        ->group(kTextGroup);
    command.add_option("--stop", flags.stop, "text that ends a sequence; may be repeated")
        ->allow_extra_args(false)
        ->group(kTextGroup);
    add_sampling_flags(command, flags.sampling);
    command
        .add_option("--logprobs", flags.logprobs,
                    "with --json: log-probabilities of new tokens, and of N most likely ones at "
                    "each")
        ->check(whole_number(0, runtime::kMostTopLogprobs))
        ->group(kForExperts);
    command.add_flag("--ignore-eos", flags.ignore_eos, "go on after end-of-sequence tokens")
        ->group(kForExperts);
}

void add_result_flags(CLI::App& command, RunArguments& flags) {
    command.add_flag("--json", flags.json, "JSON on standard output");
    command
        .add_flag("--check{host}", flags.check,
                  "compare logits with one host device in the same types; --check=f32: with the "
                  "model in f32, and say what narrow types cost")
        ->check(CLI::IsMember({kCheckHost, kCheckF32}));
    command.add_option("--score", flags.score_file, "print the perplexity of a text file instead")
        ->type_name("FILE");
    command.add_option("--trace", flags.trace, "write what ran when, for Perfetto")
        ->type_name("FILE.json");
    command
        .add_option("--dump-logits", flags.dump_logits,
                    "write f32 logits of each prompt token, then of each new token but the last")
        ->type_name("FILE")
        ->group(kForExperts);
    add_tensor_flags(command, flags.tensors);
    add_serve_flags(command, flags.serve, kServeTrace,
                    "serve requests and compare with the plan's prediction");
    command
        .add_flag("--step-by-step", flags.step_by_step,
                  "GPUs: wait after each step, so that one that fails is named")
        ->group(kForExperts);
    command
        .add_option("--gpu-compiler", flags.gpu_compiler,
                    "nvrtc, hiprtc or clang, as of 'emit'; simt: for a driver library whose cards "
                    "the CPU imitates")
        ->check(CLI::IsMember({"nvrtc", "hiprtc", "clang", "simt"}))
        ->group(kForExperts);
    command
        .add_option("--simt-seed", flags.run.simt_seed,
                    "simt devices: threads of a block run in an order drawn from this number, the "
                    "same for the same number; default: by index")
        ->group(kForExperts);
}

}  // namespace

void add_run(CLI::App& app, runtime::Drivers& drivers) {
    auto flags = std::make_shared<RunArguments>(RunArguments{.drivers = drivers});
    CLI::App* command =
        app.add_subcommand("run", "import, plan, compile and run a model in one go");
    add_model_flags(*command, flags->model);
    add_text_flags(*command, *flags);
    add_result_flags(*command, *flags);
    add_plan_flags(*command, flags->plan);
    add_run_flags(*command, flags->run);
    add_keep_packed(*command, flags->run);
    command->footer(
        "Example: cleave run models/bundled --devices 'host[0-3]' --tp 2 --pp 2 --prompt \"Once "
        "upon a time\"\n"
        "         echo \"Once upon a time\" | cleave run models/bundled -");
    command->callback([flags] {
        if (!flags->input.empty()) flags->prompt.files.push_back(flags->input);
        read_prompt_files(flags->prompt);
        draw_seed(flags->sampling);
        run(*flags);
    });
}

}  // namespace cleave::tools
