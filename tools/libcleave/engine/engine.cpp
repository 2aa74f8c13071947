// SPDX-License-Identifier: Apache-2.0
// The functions of tools/libcleave/include/cleave_engine.h.
#include "runtime/engine/replica_engines.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/base/thread_team.h"
#include "runtime/text/companions.h"
#include "runtime/text/generation_config.h"
#include "runtime/text/tokenizer.h"
#include "tools/libcleave/handles.h"
#include "tools/libcleave/include/cleave_engine.h"

using namespace cleave;
using namespace cleave::c_api;

namespace runtime = cleave::runtime;

// In the order of construction: engines end before what they use.
struct cleave_engine {
    std::unique_ptr<runtime::Tokenizer> tokenizer;
    std::vector<int32_t> eos_ids;
    std::optional<runtime::ReplicaEngines> replicas;

    const runtime::EngineGroup& group() const { return replicas->group(); }
};

namespace {

namespace fs = std::filesystem;

std::unique_ptr<runtime::Tokenizer> find_tokenizer(const char* given, const fs::path& model) {
    if (given) return *given ? runtime::load_tokenizer(given) : nullptr;
    try {
        return runtime::load_tokenizer(model);
    } catch (const UserError&) {
        return nullptr;  // none beside the model: requests are of ids
    }
}

runtime::EngineOptions options_from(const cleave_engine_options& given, const planner::Plan& plan) {
    runtime::EngineOptions options;
    options.scheduler.kv_mode =
        given.overcommit ? runtime::KvMode::kOvercommit : runtime::KvMode::kReserve;
    options.scheduler.share_prefixes = given.no_prefix_sharing == 0;
    options.scheduler.token_budget = given.token_budget;
    options.scheduler.groups = given.groups;
    if (given.groups == 0) options.scheduler.groups = runtime::default_groups(plan, given.threads);
    if (given.max_queue != 0) options.scheduler.max_queue = given.max_queue;
    return options;
}

template <class T>
std::vector<T> list_of(const T* items, size_t count, const char* what) {
    if (count == 0) return {};
    return {&needed(items, what), items + count};
}

runtime::SamplingOptions sampling_from(const cleave_request& given) {
    runtime::SamplingOptions sampling;
    sampling.temperature = given.temperature;
    if (given.top_p != 0) sampling.top_p = given.top_p;
    sampling.min_p = given.min_p;
    sampling.top_k = given.top_k;
    if (given.repetition_penalty != 0) sampling.repetition_penalty = given.repetition_penalty;
    sampling.presence_penalty = given.presence_penalty;
    sampling.frequency_penalty = given.frequency_penalty;
    sampling.seed = given.seed;
    const std::vector<int32_t> ids = list_of(given.bias_ids, given.num_biases, "bias_ids");
    const std::vector<float> values = list_of(given.bias_values, given.num_biases, "bias_values");
    for (size_t i = 0; i < ids.size(); ++i) sampling.logit_bias.push_back({ids[i], values[i]});
    return sampling;
}

runtime::EngineRequest request_from(const cleave_engine& engine, const cleave_request& given) {
    runtime::EngineRequest request;
    if (given.text) {
        if (!engine.tokenizer)
            throw UserError("a prompt of text needs a tokenizer, and the engine has none");
        request.prompt = engine.tokenizer->encode(given.text);
    } else {
        request.prompt = list_of(given.prompt, given.num_prompt, "prompt");
    }
    if (given.max_new_tokens != 0) request.max_new_tokens = given.max_new_tokens;
    if (given.prompt_only) request.max_new_tokens = 0;
    if (given.copies != 0) request.copies = given.copies;
    request.sampling = sampling_from(given);
    request.stop_ids = list_of(given.stop_ids, given.num_stop_ids, "stop_ids");
    if (!given.ignore_eos)
        request.stop_ids.insert(request.stop_ids.end(), engine.eos_ids.begin(),
                                engine.eos_ids.end());
    for (const char* text : list_of(given.stop_texts, given.num_stop_texts, "stop_texts"))
        request.stop_texts.push_back(text_of(text, "a stop text"));
    if (given.with_logprobs) request.logprobs = given.top_logprobs;
    if (given.with_prompt_logprobs) request.prompt_logprobs = given.top_prompt_logprobs;
    request.salt = given.salt;
    return request;
}

// As the C struct has them; `top` keeps what they point to.
std::vector<cleave_token_logprobs> logprobs_from(
    const std::vector<runtime::TokenLogprobs>& given,
    std::vector<std::vector<cleave_token_logprob>>& top) {
    std::vector<cleave_token_logprobs> all;
    for (const runtime::TokenLogprobs& token : given) {
        std::vector<cleave_token_logprob>& ones = top.emplace_back();
        for (const runtime::TokenLogprob& one : token.top) ones.push_back({one.id, one.logprob});
        all.push_back(
            {{token.chosen.id, token.chosen.logprob}, token.rank, ones.size(), ones.data()});
    }
    return all;
}

void call(cleave_event_callback callback, void* user, const runtime::EngineEvent& event) {
    std::vector<std::vector<cleave_token_logprob>> top;
    top.reserve(event.logprobs.size() + event.prompt_logprobs.size());
    const auto logprobs = logprobs_from(event.logprobs, top);
    const auto prompt_logprobs = logprobs_from(event.prompt_logprobs, top);
    cleave_event c{};
    c.struct_size = sizeof c;
    c.request = event.request;
    c.copy = event.copy;
    c.tokens = event.tokens.data();
    c.num_tokens = event.tokens.size();
    c.text = event.text.c_str();
    c.logprobs = logprobs.data();
    c.num_logprobs = logprobs.size();
    c.prompt_logprobs = prompt_logprobs.data();
    c.num_prompt_logprobs = prompt_logprobs.size();
    if (event.finish) c.finish = 1 + static_cast<cleave_finish>(*event.finish);
    c.message = event.message.c_str();
    c.ends_request = event.ends_request;
    c.prompt_tokens = event.usage.prompt_tokens;
    c.cached_tokens = event.usage.cached_tokens;
    c.new_tokens = event.usage.new_tokens;
    c.queue_seconds = event.usage.queue_seconds;
    c.prefill_seconds = event.usage.prefill_seconds;
    c.decode_seconds = event.usage.decode_seconds;
    callback(user, &c);
}

void open_engines(const planner::Plan& plan, cleave_engine_options given, cleave_engine& made) {
    given.threads = runtime::threads_of_each(given.threads, plan.num_replicas());
    runtime::SessionOptions options;
    options.threads = given.threads;
    options.compile.reproducible = given.reproducible != 0;
    made.replicas.emplace(
        plan, made.tokenizer.get(),
        [&](planner::Plan& one) { return std::make_unique<runtime::Session>(one, options); },
        [&](const planner::Plan& one) { return options_from(given, one); });
}

cleave_status status_of(runtime::Refusal refusal) {
    switch (refusal) {
        case runtime::Refusal::kNone: return CLEAVE_OK;
        case runtime::Refusal::kNeverFits: return CLEAVE_INVALID_INPUT;
        case runtime::Refusal::kQueueFull: return CLEAVE_QUEUE_FULL;
        case runtime::Refusal::kDraining: return CLEAVE_DRAINING;
        case runtime::Refusal::kDead: return CLEAVE_DEVICE_FAILED;
    }
    return CLEAVE_INTERNAL_ERROR;
}

cleave_engine& engine_of(cleave_engine* engine) { return needed(engine, "engine"); }

}  // namespace

cleave_status cleave_engine_new(const cleave_plan* plan, const cleave_engine_options* options,
                                cleave_engine** out) {
    return guard([&] {
        needed(out, "out") = nullptr;
        const cleave_engine_options given = options_of(options, "cleave_engine_options");
        auto made = std::make_unique<cleave_engine>();
        const planner::Plan& all = needed(plan, "plan").plan;
        const fs::path path = all.graph.path;
        if (path.empty())
            throw UserError(
                "{}: a plan without a model's file has no weights to run; make it from a model's "
                "file or folder",
                all.graph.name);
        const fs::path folder = runtime::place_of_companions(path);
        made->tokenizer = find_tokenizer(given.tokenizer, folder);
        made->eos_ids =
            runtime::stop_ids(runtime::load_generation_config(folder), made->tokenizer.get());
        std::erase_if(made->eos_ids,
                      [&](int32_t id) { return id < 0 || id >= all.graph.config.vocab_size; });
        open_engines(all, given, *made);
        *out = made.release();
    });
}

void cleave_engine_free(cleave_engine* engine) { delete engine; }

cleave_status cleave_engine_runs_alone(const cleave_engine* engine, const char** why) {
    return guard(
        [&] { needed(why, "why") = needed(engine, "engine").group().runs_alone().c_str(); });
}

cleave_status cleave_engine_add(cleave_engine* engine, const cleave_request* what,
                                cleave_event_callback callback, void* user, int64_t* request) {
    cleave_status status = CLEAVE_OK;
    const cleave_status failed = guard([&] {
        cleave_engine& e = engine_of(engine);
        if (!callback) throw ArgumentError("callback is NULL");
        needed(what, "what");
        const cleave_request given = options_of(what, "cleave_request");
        runtime::EngineAdmission admission = e.group().add(
            request_from(e, given),
            [callback, user](const runtime::EngineEvent& event) { call(callback, user, event); });
        status = status_of(admission.refusal);
        if (!admission.request) throw UserError("{}", admission.reason);
        if (request) *request = *admission.request;
    });
    return status != CLEAVE_OK ? status : failed;
}

cleave_status cleave_engine_cancel(cleave_engine* engine, int64_t request) {
    return guard([&] { engine_of(engine).group().cancel(request); });
}

cleave_status cleave_engine_drain(cleave_engine* engine, double seconds, int32_t* all_ended) {
    return guard([&] {
        const bool ended = engine_of(engine).group().drain(std::chrono::duration<double>(seconds));
        if (all_ended) *all_ended = ended;
    });
}

cleave_status cleave_engine_get_statistics(const cleave_engine* engine,
                                           cleave_engine_statistics* out) {
    return guard([&] {
        const runtime::EngineGroup& e = needed(engine, "engine").group();
        const runtime::EngineStatistics s = e.statistics();
        const auto finished = [&](runtime::FinishReason reason) {
            return s.finished[static_cast<size_t>(reason)];
        };
        cleave_engine_statistics known{};
        known.requests = s.requests;
        known.waiting = s.scheduler.waiting;
        known.running = s.scheduler.running;
        known.blocks = e.kv_blocks();
        known.blocks_free = s.scheduler.blocks_free;
        known.blocks_held = s.scheduler.blocks_held;
        known.blocks_cached = s.scheduler.blocks_cached;
        known.accepted = s.accepted;
        known.refused = s.refused;
        known.finished_stop = finished(runtime::FinishReason::kStop);
        known.finished_length = finished(runtime::FinishReason::kLength);
        known.finished_cancelled = finished(runtime::FinishReason::kCancelled);
        known.finished_fault = finished(runtime::FinishReason::kFault);
        known.prompt_tokens = s.prompt_tokens;
        known.new_tokens = s.new_tokens;
        known.prefix_queries = s.scheduler.prefix_queries;
        known.prefix_hits = s.scheduler.prefix_hits;
        known.preemptions = s.scheduler.preemptions;
        known.passes = s.passes;
        known.pass_seconds = s.pass_seconds;
        known.oldest_pass_seconds = s.oldest_pass_seconds;
        fill(out, known, "cleave_engine_statistics");
    });
}
