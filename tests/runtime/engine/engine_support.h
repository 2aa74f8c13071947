// SPDX-License-Identifier: Apache-2.0
// What tests of the engine share: a plan of sizes alone, a runner that computes rows of logits from
// what a pass reads of the pool, and a recorder of events that checks their order.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/engine/engine.h"
#include "tests/runtime/engine/fake_model.h"

namespace cleave::test {

inline constexpr int64_t kFakeVocab = 50;

struct PoolSizes {
    int64_t batch = 4, context = 64, chunk = 16, kv_tokens = 0;
};
planner::Plan plan_of_sizes(const PoolSizes& sizes);

inline runtime::EngineRequest simple(std::vector<int32_t> prompt, int64_t max_new_tokens) {
    runtime::EngineRequest request;
    request.prompt = std::move(prompt);
    request.max_new_tokens = max_new_tokens;
    return request;
}

// A row of logits for what a row of a pass sees.
std::vector<float> fake_logits(uint64_t output);

// Runs passes on a FakeModel, when they are taken.
class FakeRunner : public runtime::PassRunner {
public:
    explicit FakeRunner(const planner::Plan& plan);
    runtime::Ticket submit(runtime::Batch batch, runtime::PassResults wanted) override;
    runtime::PassResult take() override;

    // Called before a pass runs, with its number.
    std::function<void(int64_t)> before_pass;
    std::function<void(const runtime::Batch&)> on_batch;
    // A token whose row of logits is NaN; -1: none.
    int32_t poison = -1;

private:
    runtime::EngineLimits limits_;
    FakeModel model_;
    std::deque<std::pair<runtime::Batch, runtime::PassResults>> queue_;
    int64_t submitted_ = 0, taken_ = 0;
};

// What a copy of a request was told.
struct ToldCopy {
    std::vector<int32_t> tokens;
    std::string text;
    std::vector<runtime::TokenLogprobs> logprobs;
    std::optional<runtime::FinishReason> finish;
    std::string message;
};
struct ToldRequest {
    std::vector<ToldCopy> copies;
    std::vector<runtime::TokenLogprobs> prompt_logprobs;
    bool has_ended = false;
    runtime::RequestUsage usage;
};

// A token that follows another is not equal to it modulo 3; whole after `most` tokens.
class RuleOfThree : public runtime::TokenRule {
public:
    explicit RuleOfThree(int64_t most = int64_t{1} << 40) : left_(most) {}
    std::span<const uint32_t> allowed() override;
    bool take(int32_t token) override;

private:
    int64_t left_;
    int32_t last_ = -1;
    std::vector<uint32_t> words_;
};

// Takes the events of any number of requests.
class Recorder {
public:
    // Of a request of so many copies.
    runtime::EventSink sink(int64_t key, int64_t copies);
    // Waits until all requests have ended.
    void wait();
    const ToldRequest& told(int64_t key) const { return told_.at(key); }
    // What was told in a wrong order; empty: nothing.
    std::string mistakes() const { return mistakes_; }

private:
    void take(int64_t key, const runtime::EngineEvent& event);

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::map<int64_t, ToldRequest> told_;
    int64_t open_ = 0;
    std::string mistakes_;
};

// The tokens that a copy of the request has alone.
std::vector<int32_t> tokens_alone(const runtime::EngineRequest& request, int64_t copy,
                                  const runtime::EngineLimits& limits);

}  // namespace cleave::test
