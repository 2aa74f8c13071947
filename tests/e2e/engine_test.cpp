// SPDX-License-Identifier: Apache-2.0
// The engine over sessions: requests that come, go and share have what each has alone.
#include <random>

#include "runtime/engine/engine.h"
#include "runtime/generate/generate.h"
#include "tests/e2e/support.h"
#include "tests/runtime/engine/engine_support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;
using namespace std::chrono_literals;

namespace {

constexpr int64_t kEngineContext = 96, kChunk = 64, kMostCopies = 3;
constexpr size_t kRequests = 8;
constexpr int32_t kTop = 3;

// Few first tokens, so that prompts share prefixes.
EngineRequest model_request(std::mt19937& random, const planner::Workload& workload) {
    EngineRequest request;
    const auto kind = static_cast<int32_t>(random() % 2);
    for (size_t i = 0, length = 1 + random() % 50; i < length; ++i)
        request.prompt.push_back(i < 34 ? kind + 1 : static_cast<int32_t>(random() % 131));
    request.max_new_tokens = 1 + static_cast<int64_t>(random() % 46);
    if (random() % 2) {
        request.sampling.temperature = 0.8f;
        request.sampling.top_k = 30;
        request.sampling.seed = random() % 100;
    }
    if (random() % 4 == 0) request.sampling.repetition_penalty = 1.2f;
    if (random() % 4 == 0) request.stop_ids = {static_cast<int32_t>(random() % 131)};
    if (random() % 3 == 0) {
        const int64_t tokens = std::ssize(request.prompt) + request.max_new_tokens;
        const int64_t room = (workload.pool_blocks() - 1) / planner::kv_blocks(tokens);
        request.copies = std::min({kMostCopies, workload.batch, room});
    }
    if (random() % 2) request.logprobs = kTop;
    if (random() % 4 == 0) request.prompt_logprobs = kTop;
    return request;
}

// What generate() gives a request that has the devices for itself.
class Alone {
public:
    Alone(const importer::Graph& graph, int tensor_parallel, const SessionOptions& options)
        : shape_{"alone", kHosts[tensor_parallel - 1], tensor_parallel, 1},
          plan_(plan_for(graph, shape_, all_logits_workload(kMostCopies, kEngineContext, kChunk))),
          session_(plan_, options) {}

    std::vector<SequenceResult> of(const EngineRequest& request) {
        GenerateOptions options;
        options.max_new_tokens = request.max_new_tokens;
        options.sampling = request.sampling;
        options.stop_ids = request.stop_ids;
        options.keep_logits = true;
        options.logprobs = kTop;
        const std::vector<std::vector<int32_t>> prompts(static_cast<size_t>(request.copies),
                                                        request.prompt);
        return generate(session_, plan_, prompts, options).sequences;
    }

private:
    static constexpr const char* kHosts[] = {"host", "host[0-1]", "host[0-2]"};
    DeviceShape shape_;
    planner::Plan plan_;
    Session session_;
};

// To the bit.
void check_same(const TokenLogprobs& told, const TokenLogprobs& alone) {
    CHECK(told.chosen.id == alone.chosen.id);
    CHECK(told.chosen.logprob == alone.chosen.logprob);
    CHECK(told.rank == alone.rank);
    REQUIRE(told.top.size() == alone.top.size());
    for (size_t i = 0; i < told.top.size(); ++i) {
        CHECK(told.top[i].id == alone.top[i].id);
        CHECK(told.top[i].logprob == alone.top[i].logprob);
    }
}

void check_as_alone(const EngineRequest& request, const ToldRequest& told, Alone& model) {
    const std::vector<SequenceResult> all = model.of(request);
    for (size_t c = 0; c < all.size(); ++c) {
        const ToldCopy& copy = told.copies[c];
        std::vector<int32_t> alone = all[c].token_ids;
        REQUIRE(copy.finish);
        if (*copy.finish == FinishReason::kCancelled) {
            REQUIRE(copy.tokens.size() <= alone.size());
            alone.resize(copy.tokens.size());
        }
        CHECK(copy.tokens == alone);
        REQUIRE(copy.logprobs.size() == (request.logprobs ? alone.size() : 0));
        for (size_t i = 0; i < copy.logprobs.size(); ++i)
            check_same(copy.logprobs[i], all[c].logprobs[i]);
    }
    const auto vocab = static_cast<size_t>(small_shape().config.vocab_size);
    REQUIRE(told.prompt_logprobs.size() < request.prompt.size());
    for (size_t i = 0; i < told.prompt_logprobs.size(); ++i)
        check_same(told.prompt_logprobs[i],
                   logprobs_of(std::span(all[0].logits).subspan(i * vocab, vocab),
                               request.prompt[i + 1], kTop));
}

// Of kernels whose sums have other orders in other company: rounding alone may differ, and greedy
// tokens are the same up to the first whose two likeliest are as near as that.
void check_near_alone(const EngineRequest& request, const ToldRequest& told, Alone& model) {
    constexpr float kRounding = 1e-3f;  // of log-probabilities, in f32
    const std::vector<SequenceResult> all = model.of(request);
    for (size_t c = 0; c < all.size(); ++c) {
        const ToldCopy& copy = told.copies[c];
        REQUIRE(copy.finish);
        if (*copy.finish != FinishReason::kCancelled)
            CHECK(copy.tokens.size() == all[c].token_ids.size());
        for (size_t i = 0; i < std::min(copy.tokens.size(), all[c].token_ids.size()); ++i) {
            const TokenLogprobs& alone = all[c].logprobs[i];
            if (alone.top[0].logprob - alone.top[1].logprob < 2 * kRounding) break;
            CHECK(copy.tokens[i] == all[c].token_ids[i]);
            CHECK(std::abs(copy.logprobs[i].chosen.logprob - alone.chosen.logprob) < kRounding);
        }
    }
}

class HookedRunner : public SessionRunner {
public:
    using SessionRunner::SessionRunner;
    PassResult take() override {
        before_take();
        return SessionRunner::take();
    }
    std::function<void()> before_take;
};

// Requests that come and are cancelled between passes, on the engine's thread, as a seed says: the
// same seed gives the same passes.
class Interleaving {
public:
    // `greedy`: of tokens that no draw, penalty or stop chooses, with their log-probabilities.
    Interleaving(uint32_t seed, const planner::Plan& plan, Session& session, bool greedy = false)
        : random_(seed) {
        for (size_t i = 0; i < kRequests; ++i) {
            EngineRequest& request = requests_.emplace_back(model_request(random_, plan.workload));
            if (!greedy) continue;
            request.sampling = {};
            request.stop_ids.clear();
            request.logprobs = kTop;
        }
        EngineOptions options;
        options.scheduler.groups = 1 + static_cast<int64_t>(random_() % 4);
        options.scheduler.kv_mode = random_() % 3 ? KvMode::kOvercommit : KvMode::kReserve;
        options.scheduler.share_prefixes = random_() % 4 != 0;
        options.scheduler.token_budget =
            std::max<int64_t>(plan.workload.batch, 1 + static_cast<int64_t>(random_() % kChunk));
        HookedRunner runner(session);
        runner.before_take = [&] { on_pass(); };
        Engine engine(plan, runner, nullptr, options);
        engine_ = &engine;
        {
            const std::lock_guard lock(mutex_);
            come();
        }
        recorder_.wait();
        CHECK(engine.drain(60s));
        statistics = engine.statistics();
    }

    using Check = void (*)(const EngineRequest&, const ToldRequest&, Alone&);
    void check(Alone& model, Check check_request) const {
        CHECK(recorder_.mistakes().empty());
        REQUIRE(ids_.size() == requests_.size());
        CHECK(statistics.scheduler.blocks_held == 0);
        for (size_t i = 0; i < requests_.size(); ++i) {
            CAPTURE(i);
            check_request(requests_[i], recorder_.told(static_cast<int64_t>(i)), model);
        }
    }

    EngineStatistics statistics;

private:
    void come() {
        const auto key = static_cast<int64_t>(ids_.size());
        const EngineRequest& request = requests_[ids_.size()];
        ids_.push_back(-1);
        ++open_;
        const EngineAdmission admission = engine_->add(
            request, [this, told = recorder_.sink(key, request.copies)](const EngineEvent& event) {
                if (event.ends_request) on_end();
                told(event);
            });
        if (admission.request) ids_.back() = *admission.request;
    }

    void on_pass() {
        const std::lock_guard lock(mutex_);
        while (ids_.size() < requests_.size() && random_() % 3 == 0) come();
        if (random_() % 16 == 0) engine_->cancel(ids_[random_() % ids_.size()]);
    }

    void on_end() {
        const std::lock_guard lock(mutex_);
        if (--open_ == 0 && ids_.size() < requests_.size()) come();
    }

    std::mutex mutex_;  // the first request comes from another thread
    std::mt19937 random_;
    std::vector<EngineRequest> requests_;
    std::vector<RequestId> ids_;  // of those that have come
    int64_t open_ = 0;
    Engine* engine_ = nullptr;
    Recorder recorder_;
};

}  // namespace

TEST_CASE(
    "in 50 interleavings, on any devices, chunks and pools, a request has the tokens and the "
    "log-probabilities that generate() gives it alone",
    "[e2e][engine]") {
    models::Shape layers = small_shape();
    layers.config.num_layers = 4;
    const importer::Graph graph = random_model(layers, 3);
    const std::vector<DeviceShape> shapes{
        {"one device", "host", 1, 1},       {"pp 2", "host[0-1]", 1, 2},
        {"pp 3", "host[0-2]", 1, 3},        {"pp 4", "host[0-3]", 1, 4},
        {"tp 2", "host[0-1]", 2, 1},        {"tp 2 x pp 2", "host[0-3]", 2, 2},
        {"tp 2 x pp 3", "host[0-5]", 2, 3}, {"tp 3", "host[0-2]", 3, 1},
        {"tp 3 x pp 2", "host[0-5]", 3, 2}, {"tp 3 x pp 4", "host[0-11]", 3, 4}};
    std::vector<std::unique_ptr<Alone>> alone;
    for (int t = 1; t <= 3; ++t)
        alone.push_back(std::make_unique<Alone>(graph, t, reproducible_options()));
    int64_t preemptions = 0, prefix_hits = 0, cancelled = 0;
    uint32_t seed = 0;
    for (const DeviceShape& shape : shapes) {
        planner::Workload workload;
        workload.batch = 1 + seed / 5 % 5;
        workload.context = kEngineContext;
        workload.prompt_tokens = 32;
        workload.prefill_chunk = kChunk;
        workload.kv_tokens = kEngineContext * (3 + seed / 5 % 3) / 3;  // a context to not two
        planner::Plan plan = plan_for(graph, shape, workload);
        Session session(plan, reproducible_options());
        for (int round = 0; round < 5; ++round, ++seed) {
            CAPTURE(seed, shape.name, workload.batch, workload.kv_tokens);
            const Interleaving interleaving(seed, plan, session);
            interleaving.check(*alone[static_cast<size_t>(shape.tensor_parallel - 1)],
                               check_as_alone);
            const EngineStatistics& statistics = interleaving.statistics;
            preemptions += statistics.scheduler.preemptions;
            prefix_hits += statistics.scheduler.prefix_hits;
            cancelled += statistics.finished[static_cast<size_t>(FinishReason::kCancelled)];
        }
    }
    CHECK(preemptions > 5);
    CHECK(prefix_hits > 500);
    CHECK(cancelled > 10);
}

TEST_CASE(
    "with the kernels that are not held to reproducible sums, a greedy request has the tokens of "
    "generate() wherever rounding cannot choose another",
    "[e2e][engine]") {
    models::Shape layers = small_shape();
    layers.config.num_layers = 4;
    const importer::Graph graph = random_model(layers, 3);
    uint32_t seed = 100;
    for (const DeviceShape& shape :
         {DeviceShape{"pp 2", "host[0-1]", 1, 2}, DeviceShape{"tp 2 x pp 2", "host[0-3]", 2, 2}}) {
        Alone alone(graph, shape.tensor_parallel, checked_options());
        planner::Workload workload;
        workload.batch = 4;
        workload.context = kEngineContext;
        workload.prompt_tokens = 32;
        workload.prefill_chunk = kChunk;
        workload.kv_tokens = 2 * kEngineContext;
        planner::Plan plan = plan_for(graph, shape, workload);
        Session session(plan, checked_options());
        for (int round = 0; round < 5; ++round, ++seed) {
            CAPTURE(seed, shape.name);
            const Interleaving interleaving(seed, plan, session, true);
            interleaving.check(alone, check_near_alone);
        }
    }
}
