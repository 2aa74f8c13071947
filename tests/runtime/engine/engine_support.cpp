// SPDX-License-Identifier: Apache-2.0
#include "tests/runtime/engine/engine_support.h"

#include <limits>

#include "runtime/execute/greedy.h"

namespace cleave::test {

using namespace runtime;

planner::Plan plan_of_sizes(const PoolSizes& sizes) {
    planner::Plan plan;
    plan.graph.name = "fake";
    plan.graph.config.vocab_size = kFakeVocab;
    plan.workload.batch = sizes.batch;
    plan.workload.context = sizes.context;
    plan.workload.prefill_chunk = sizes.chunk;
    plan.workload.kv_tokens = sizes.kv_tokens;
    plan.kv_pool = {plan.workload.pool_blocks()};
    return plan;
}

std::vector<float> fake_logits(uint64_t output) {
    std::vector<float> logits;
    for (uint64_t id = 0; id < kFakeVocab; ++id)
        logits.push_back(static_cast<float>(mixed(output, id) % 1000) / 100.0f);
    return logits;
}

FakeRunner::FakeRunner(const planner::Plan& plan) : limits_(limits_of(plan)), model_(limits_) {}

Ticket FakeRunner::submit(Batch batch, PassResults wanted) {
    queue_.emplace_back(std::move(batch), wanted);
    return submitted_++;
}

PassResult FakeRunner::take() {
    if (before_pass) before_pass(taken_);
    const auto [batch, wanted] = std::move(queue_.front());
    queue_.pop_front();
    if (on_batch) on_batch(batch);
    PassResult result;
    result.ticket = taken_++;
    const std::vector<uint64_t> outputs = model_.run(batch);
    for (size_t i = 0; i < outputs.size() && wanted != PassResults::kNone; ++i) {
        std::vector<float> row = fake_logits(outputs[i]);
        if (batch.token_ids[static_cast<size_t>(batch.output_rows[i])] == poison)
            row[7] = std::numeric_limits<float>::quiet_NaN();
        if (wanted == PassResults::kTokens)
            result.tokens.push_back(largest_logit(row));
        else
            result.logits.insert(result.logits.end(), row.begin(), row.end());
    }
    return result;
}

EventSink Recorder::sink(int64_t key, int64_t copies) {
    const std::lock_guard lock(mutex_);
    told_[key].copies.resize(static_cast<size_t>(copies));
    ++open_;
    return [this, key](const EngineEvent& event) { take(key, event); };
}

std::span<const uint32_t> RuleOfThree::allowed() {
    words_.assign((kFakeVocab + 31) / 32, 0);
    for (int32_t id = 0; id < kFakeVocab; ++id)
        if (last_ < 0 || id % 3 != last_ % 3)
            words_[static_cast<size_t>(id / 32)] |= 1u << (id % 32);
    return words_;
}

bool RuleOfThree::take(int32_t token) {
    CLEAVE_CHECK(last_ < 0 || token % 3 != last_ % 3) << token << " behind " << last_;
    last_ = token;
    return --left_ == 0;
}

void Recorder::take(int64_t key, const EngineEvent& event) {
    const std::lock_guard lock(mutex_);
    ToldRequest& request = told_.at(key);
    const auto mistake = [&](const char* what) {
        mistakes_ += "request " + std::to_string(key) + ": " + what + "\n";
    };
    if (request.has_ended) mistake("an event behind its end");
    ToldCopy& copy = request.copies.at(static_cast<size_t>(event.copy));
    if (copy.finish) mistake("an event of a copy that had ended");
    if (!event.finish && event.tokens.empty() && event.prompt_logprobs.empty())
        mistake("an event of nothing");
    if (!event.prompt_logprobs.empty() && !copy.tokens.empty())
        mistake("log-probabilities of the prompt behind the first token");
    copy.tokens.insert(copy.tokens.end(), event.tokens.begin(), event.tokens.end());
    copy.text += event.text;
    copy.logprobs.insert(copy.logprobs.end(), event.logprobs.begin(), event.logprobs.end());
    request.prompt_logprobs.insert(request.prompt_logprobs.end(), event.prompt_logprobs.begin(),
                                   event.prompt_logprobs.end());
    if (event.finish) {
        copy.finish = event.finish;
        copy.message = event.message;
    }
    bool all = true;
    for (const ToldCopy& one : request.copies) all = all && one.finish.has_value();
    if (event.ends_request != all) mistake("its end is not that of its last copy");
    if (!event.ends_request) return;
    request.has_ended = true;
    request.usage = event.usage;
    --open_;
    changed_.notify_all();
}

void Recorder::wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_ == 0; });
}

std::vector<int32_t> tokens_alone(const EngineRequest& request, int64_t copy,
                                  const EngineLimits& limits) {
    AloneSequence model(limits);
    TokenCounts counts;
    counts.add_prompt(request.prompt);
    uint64_t output = 0;
    for (const int32_t token : request.prompt) output = model.add(token);
    std::vector<int32_t> tokens;
    // The test's own account of RuleOfThree.
    const auto logits_of = [&] {
        std::vector<float> logits = fake_logits(output);
        for (int32_t id = 0; request.rule && !tokens.empty() && id < kFakeVocab; ++id)
            if (id % 3 == tokens.back() % 3)
                logits[static_cast<size_t>(id)] = -std::numeric_limits<float>::infinity();
        return logits;
    };
    while (static_cast<int64_t>(tokens.size()) < request.max_new_tokens) {
        const int32_t token =
            sample_token(logits_of(), request.sampling, static_cast<uint64_t>(copy),
                         request.prompt.size() + tokens.size(), counts);
        counts.add(token);
        tokens.push_back(token);
        if (std::ranges::find(request.stop_ids, token) != request.stop_ids.end()) break;
        output = model.add(token);
    }
    return tokens;
}

}  // namespace cleave::test
