// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "planner/ask/basis.h"
#include "planner/machine/device_names.h"
#include "planner/plan/text_table.h"
#include "planner/plan/used_devices.h"
#include "runtime/base/errors.h"
#include "runtime/generate/generate.h"
#include "tools/cli/files.h"
#include "tools/cli/spelling.h"
#include "tools/cli/terminal.h"
#include "tools/cli/text_stream.h"
#include "tools/commands/run_check.h"
#include "tools/commands/run_prediction.h"
#include "tools/commands/run_work.h"

namespace cleave::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kDefaultNewTokens = 128;

// UserError for prompts that leave no room for their new tokens, with the most that there is for.
void check_lengths(const RunArguments& flags, const planner::Plan& plan,
                   const std::vector<std::vector<int32_t>>& prompts, int64_t max_positions) {
    const int64_t context = plan.workload.context;
    int64_t longest = 0;
    for (const auto& p : prompts) longest = std::max(longest, static_cast<int64_t>(p.size()));
    if (longest + std::max<int64_t>(1, flags.max_new_tokens) <= context) return;
    const int64_t room = context - longest;
    std::vector<std::string> fixes;
    if (room > 0)
        fixes.push_back(fmt::format("give --max-new-tokens {} at most", room));
    else
        fixes.emplace_back("shorten it");
    if (max_positions > context)
        fixes.push_back(fmt::format("raise --context (the model's limit is {})", max_positions));
    throw UserError("the prompt's {} tokens{} exceed the context of {}: {}{}", longest,
                    flags.max_new_tokens ? fmt::format(" and {} new ones", flags.max_new_tokens)
                                         : " and a new one",
                    context, fmt::join(fixes, ", or "),
                    max_positions > context ? "" : "; the model ends there");
}

int64_t new_tokens(const RunArguments& flags, const planner::Plan& plan,
                   const std::vector<std::vector<int32_t>>& prompts) {
    if (flags.max_new_tokens > 0) return flags.max_new_tokens;
    int64_t room = plan.workload.context;
    for (const auto& p : prompts)
        room = std::min(room, plan.workload.context - static_cast<int64_t>(p.size()));
    return std::min(kDefaultNewTokens, room);
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

// What `of` chooses of each replica's devices.
std::vector<std::string> names_of(
    const OpenedReplicas& opened,
    const std::function<std::vector<planner::DeviceId>(const planner::Plan&)>& of) {
    std::vector<std::string> names;
    for (const planner::Plan& plan : opened.plans)
        for (planner::DeviceId d : of(plan)) names.push_back(plan.machine.device(d).name);
    return names;
}

Json predicted_json(const OpenedReplicas& opened, const std::vector<std::vector<int32_t>>& prompts,
                    const runtime::GenerateResult& result) {
    const RunPrediction p = predict_run(opened.plans, prompts, result.sequences);
    return {{"prefill_ms", p.prefill_ms},
            {"decode_ms_per_token", p.decode_ms_per_token},
            {"tokens_per_second", p.tokens_per_second},
            {"basis", Json::parse(planner::basis_json(opened.plans[0], spell_for_command_line))}};
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
    if (const std::vector<std::string> unused = names_of(opened, planner::unused_devices);
        !unused.empty())
        json["unused_devices"] = unused;
    if (opened.plans.size() > 1) json["replicas"] = opened.plans.size();
    json["predicted"] = predicted_json(opened, prompts, result);
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

// "on 1 of 3 devices, host[1] and host[2] unused: each doubling of the devices has to gain 2 %".
std::string devices_text(const OpenedReplicas& opened) {
    const size_t used = names_of(opened, planner::used_devices).size();
    const planner::Plan& plan = opened.plans[0];
    const std::vector<planner::DeviceId> left = planner::unused_devices(plan);
    const size_t all = used + names_of(opened, planner::unused_devices).size();
    std::string text = used == all ? fmt::format("{} device{}", used, used == 1 ? "" : "s")
                                   : fmt::format("{} of {} devices", used, all);
    if (opened.plans.size() > 1) text += fmt::format(" in {} replicas", opened.plans.size());
    if (!left.empty())
        text += fmt::format(" ({} unused: {})", planner::folded_names(plan.machine, left),
                            planner::row_of(plan.options.objective).leaves_out);
    return text;
}

// Measured beside predicted, and what the prediction rests on.
void print_times(const OpenedReplicas& opened, const std::vector<std::vector<int32_t>>& prompts,
                 const runtime::GenerateResult& result) {
    const RunPrediction p = predict_run(opened.plans, prompts, result.sequences);
    planner::TextTable table("<>>>", "  ");
    table.row({"", "prefill", "a token", "tokens/s"});
    const auto row = [&](const char* name, double prefill_ms, double decode_ms, double rate) {
        const bool decodes = decode_ms > 0;
        table.row({name, planner::time_text(std::llround(prefill_ms * 1e6)),
                   decodes ? planner::time_text(std::llround(decode_ms * 1e6)) : "-",
                   decodes ? fmt::format("{:.{}f}", rate, rate < 100 ? 1 : 0) : "-"});
    };
    row("measured", result.prefill_ms, result.decode_ms_per_token, result.tokens_per_second);
    row("predicted", p.prefill_ms, p.decode_ms_per_token, p.tokens_per_second);
    const int width = terminal_width();
    say("{}", table.text(width));
    for (const std::string& line : planner::basis_lines(opened.plans[0], spell_for_command_line))
        say("  rests on   {}\n", planner::wrapped(line, 13, width));
}

void print_summary(const OpenedReplicas& opened, const std::vector<std::vector<int32_t>>& prompts,
                   const runtime::GenerateResult& result) {
    size_t tokens = 0;
    for (const auto& s : result.sequences) tokens += s.token_ids.size();
    const auto bytes = opened.sum([](const auto& s) { return s.loading().bytes; });
    const double seconds = opened.sum([](const auto& s) { return s.loading().seconds; });
    say("{} of weights loaded in {:.2f} s, {}/s\n", format_bytes(bytes), seconds,
        format_bytes(static_cast<int64_t>(static_cast<double>(bytes) / std::max(seconds, 1e-9))));
    say("{} token{} on {}, {} moved between devices\n", tokens, tokens == 1 ? "" : "s",
        devices_text(opened),
        format_bytes(opened.sum([](const auto& s) { return s.transferred_bytes(); })));
    print_times(opened, prompts, result);
    for (const auto& session : opened.sessions)
        for (const runtime::LibraryMemory& m : session->library_memory())
            say("{} took {} of {}; the plan keeps {} for it\n", m.library,
                format_bytes(m.taken_bytes), m.device, format_bytes(m.reserved_bytes));
}

}  // namespace

void run_generate(const RunArguments& flags, Ready& ready) {
    std::vector<int32_t> stops =
        flags.ignore_eos ? std::vector<int32_t>{} : stop_ids(ready.model, ready.tokenizer.get());
    const int64_t max_positions = ready.model.max_positions;
    planner::Plan plan = make_run_plan(flags, ready);
    check_lengths(flags, plan, ready.prompts, max_positions);
    demand_reference(flags, plan);
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
    if (!flags.trace.empty()) write_trace(flags, opened);
    if (flags.json) {
        Json json = result_json(opened, ready.prompts, result, texts);
        if (flags.sampling.seed) json["seed"] = *flags.sampling.seed;
        LogitDifference difference;
        if (!flags.check.empty()) {
            difference = host_difference(flags, plan, ready.prompts, options, result);
            add_check(flags, difference, json);
        }
        show_exactly(json.dump(2) + "\n");
        return demand_numbers(difference);
    }
    if (print_text) show("\n");
    flush_output();
    for (size_t i = 0; !print_text && i < result.sequences.size(); ++i)
        show_generated(fmt::format(
            "{}{}\n", ready.prompts.size() > 1 ? bold(fmt::format("[{}] ", i)) : "",
            ready.tokenizer ? texts[i]
                            : fmt::format("{}", fmt::join(result.sequences[i].token_ids, ","))));
    print_summary(opened, ready.prompts, result);
    say_seed(flags.sampling);
    if (!flags.check.empty()) {
        const LogitDifference difference =
            host_difference(flags, plan, ready.prompts, options, result);
        demand_numbers(difference);
        show("{}\n", check_text(flags, plan, difference));
    }
}

}  // namespace cleave::tools
