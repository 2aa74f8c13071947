// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cmath>
#include <fstream>
#include <future>
#include <limits>
#include <random>
#include <thread>

#include "runtime/text/utf8.h"
#include "tests/runtime/engine/engine_support.h"
#include "tests/runtime/text/cases.h"
#include "tests/support/failures.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;
using Catch::Matchers::Contains;
using namespace std::chrono_literals;

namespace {

SamplingOptions random_sampling(std::mt19937& random) {
    SamplingOptions options;
    if (random() % 2 == 0) return options;
    options.temperature = 0.5f + static_cast<float>(random() % 10) / 5.0f;
    options.seed = random() % 3;
    if (random() % 2) options.top_k = static_cast<int32_t>(random() % 20);
    if (random() % 2) options.top_p = 0.9f;
    if (random() % 3 == 0) options.min_p = 0.05f;
    if (random() % 3 == 0) options.repetition_penalty = 1.3f;
    if (random() % 3 == 0) options.frequency_penalty = 0.5f;
    if (random() % 3 == 0) options.logit_bias = {{static_cast<int32_t>(random() % 50), 3.0f}};
    return options;
}

// Few first tokens, so that prompts share prefixes.
EngineRequest random_request(std::mt19937& random, int64_t context) {
    const int64_t length = 1 + static_cast<int64_t>(random() % static_cast<size_t>(context / 2));
    std::vector<int32_t> prompt;
    const auto kind = static_cast<int32_t>(random() % 3);
    for (int64_t i = 0; i < length; ++i)
        prompt.push_back(i < 24 ? kind : static_cast<int32_t>(random() % 50));
    EngineRequest request = simple(
        std::move(prompt), 1 + static_cast<int64_t>(random() % static_cast<size_t>(context / 3)));
    request.copies = random() % 4 == 0 ? 2 : 1;
    request.sampling = random_sampling(random);
    if (random() % 3 == 0) request.stop_ids = {static_cast<int32_t>(random() % 50)};
    if (random() % 4 == 0) request.logprobs = 2;
    if (random() % 5 == 0) request.prompt_logprobs = 1;
    request.salt = random() % 2;
    if (random() % 3 == 0) request.rule = [] { return std::make_unique<RuleOfThree>(); };
    return request;
}

void check_as_alone(const EngineRequest& request, const ToldRequest& told,
                    const EngineLimits& limits) {
    for (int64_t c = 0; c < request.copies; ++c) {
        const ToldCopy& copy = told.copies[static_cast<size_t>(c)];
        const std::vector<int32_t> alone = tokens_alone(request, c, limits);
        REQUIRE(copy.finish);
        if (*copy.finish == FinishReason::kCancelled) {
            REQUIRE(copy.tokens.size() <= alone.size());
            CHECK(std::equal(copy.tokens.begin(), copy.tokens.end(), alone.begin()));
            continue;
        }
        CHECK(copy.tokens == alone);
        CHECK(copy.logprobs.size() == (request.logprobs ? alone.size() : 0));
        const bool stopped =
            std::ranges::find(request.stop_ids, alone.back()) != request.stop_ids.end();
        CHECK(*copy.finish == (stopped ? FinishReason::kStop : FinishReason::kLength));
    }
    if (told.copies[0].finish == FinishReason::kCancelled) return;
    CHECK(told.prompt_logprobs.size() == (request.prompt_logprobs ? request.prompt.size() - 1 : 0));
}

void check_nothing_held(const Engine& engine) {
    const EngineStatistics statistics = engine.statistics();
    CHECK(statistics.requests == 0);
    CHECK(statistics.scheduler.blocks_held == 0);
    CHECK(statistics.scheduler.waiting == 0);
    CHECK(statistics.scheduler.running == 0);
    CHECK(statistics.scheduler.blocks_free + statistics.scheduler.blocks_cached ==
          engine.limits().num_blocks - 1);
}

int64_t resident_bytes() {
    std::ifstream file("/proc/self/statm");
    int64_t total = 0, resident = 0;
    file >> total >> resident;
    return resident * 4096;
}

}  // namespace

TEST_CASE("each request's tokens are those that it has alone, whoever comes, goes and shares",
          "[runtime][engine]") {
    for (uint32_t seed = 0; seed < 60; ++seed) {
        std::mt19937 random(seed);
        PoolSizes sizes;
        sizes.batch = 1 + static_cast<int64_t>(random() % 5);
        sizes.context = 32 + static_cast<int64_t>(random() % 60);
        sizes.chunk = std::max<int64_t>(sizes.batch, 1 + static_cast<int64_t>(random() % 64));
        // From room for one context to room for all.
        sizes.kv_tokens =
            sizes.context + 16 +
            static_cast<int64_t>(random() % static_cast<size_t>(sizes.context * sizes.batch));
        const planner::Plan plan = plan_of_sizes(sizes);
        EngineOptions options;
        options.scheduler.groups = 1 + static_cast<int64_t>(random() % 4);
        options.scheduler.kv_mode = random() % 2 ? KvMode::kOvercommit : KvMode::kReserve;
        options.scheduler.share_prefixes = random() % 4 != 0;
        CAPTURE(seed, sizes.batch, sizes.context, sizes.chunk, sizes.kv_tokens);
        FakeRunner runner(plan);
        Recorder recorder;
        std::vector<EngineRequest> requests;
        Engine engine(plan, runner, nullptr, options);
        std::vector<std::optional<RequestId>> ids;
        for (int64_t key = 0; key < 40; ++key) {
            requests.push_back(random_request(random, sizes.context));
            requests.back().copies = std::min(requests.back().copies, sizes.batch);
            const EngineAdmission admission =
                engine.add(requests.back(), recorder.sink(key, requests.back().copies));
            REQUIRE(admission.request);
            ids.push_back(admission.request);
            if (random() % 3 == 0) engine.cancel(*ids[random() % ids.size()]);
            if (random() % 4 == 0) std::this_thread::yield();
        }
        recorder.wait();
        CHECK(engine.drain(60s));
        CHECK(recorder.mistakes().empty());
        for (size_t key = 0; key < requests.size(); ++key)
            check_as_alone(requests[key], recorder.told(static_cast<int64_t>(key)),
                           engine.limits());
        check_nothing_held(engine);
    }
}

TEST_CASE("a drain waits however long it is let, and not at all for no time", "[runtime][engine]") {
    for (const double seconds : {1e3, 1e12, 1e300, std::numeric_limits<double>::infinity()}) {
        INFO(seconds);
        const planner::Plan plan = plan_of_sizes({});
        FakeRunner runner(plan);
        std::mutex gate;
        std::unique_lock closed(gate);
        runner.before_pass = [&](int64_t) { const std::lock_guard wait(gate); };
        Recorder recorder;
        Engine engine(plan, runner, nullptr, {});
        engine.add(simple({1, 2, 3}, 5), recorder.sink(0, 1));
        for (const double none : {0.0, -1.0, -1e300, std::nan("")})
            CHECK(!engine.drain(std::chrono::duration<double>(none)));
        auto drained = std::async(std::launch::async, [&] {
            return engine.drain(std::chrono::duration<double>(seconds));
        });
        std::this_thread::sleep_for(20ms);
        closed.unlock();
        CHECK(drained.get());
        recorder.wait();
    }
}

TEST_CASE("copies from a number on draw as in a request that has those before",
          "[runtime][engine]") {
    const planner::Plan plan = plan_of_sizes({});
    FakeRunner runner(plan);
    Engine engine(plan, runner, nullptr, {});
    Recorder recorder;
    EngineRequest request = simple({3, 4, 5}, 20);
    request.copies = 4;
    request.sampling.temperature = 1;
    request.sampling.seed = 9;
    engine.add(request, recorder.sink(0, 4));
    request.copies = 2;
    request.first_copy = 2;
    engine.add(request, recorder.sink(1, 2));
    recorder.wait();
    const auto& all = recorder.told(0).copies;
    CHECK(all[0].tokens != all[1].tokens);
    for (size_t copy = 0; copy < 2; ++copy)
        CHECK(recorder.told(1).copies[copy].tokens == all[copy + 2].tokens);
}

TEST_CASE("a hundred thousand requests, half of them cancelled, leave nothing behind",
          "[runtime][engine]") {
    const planner::Plan plan = plan_of_sizes({32, 64, 64, 1024});
    FakeRunner runner(plan);
    EngineOptions options;
    options.scheduler.kv_mode = KvMode::kOvercommit;
    options.scheduler.max_queue = 256;
    Engine engine(plan, runner, nullptr, options);
    std::mt19937 random(1);
    std::atomic<int64_t> ends{0}, wrong{0};
    int64_t resident = 0;
    constexpr int64_t kRequests = 100'000;
    for (int64_t i = 0; i < kRequests; ++i) {
        std::vector<int32_t> prompt(1 + random() % 20, static_cast<int32_t>(random() % 50));
        while (true) {
            const EngineAdmission admission =
                engine.add(simple(prompt, 1 + static_cast<int64_t>(random() % 4)),
                           [&, ended = false](const EngineEvent& event) mutable {
                               wrong += ended ? 1 : 0;
                               ended = event.ends_request;
                               ends += ended ? 1 : 0;
                           });
            if (admission.request) {
                if (i % 2 == 0) engine.cancel(*admission.request);
                break;
            }
            REQUIRE(admission.refusal == Refusal::kQueueFull);
            std::this_thread::yield();
        }
        if (i == kRequests / 5) resident = resident_bytes();
    }
    CHECK(engine.drain(300s));
    CHECK(ends == kRequests);
    CHECK(wrong == 0);
    check_nothing_held(engine);
    CHECK(resident_bytes() - resident < int64_t{16} << 20);
}

TEST_CASE("a copy's text ends before its stop text, and none of it is in an event",
          "[runtime][engine]") {
    const auto tokenizer = make_tokenizer(named_document("llama 2"));
    const planner::Plan plan = plan_of_sizes({});
    FakeRunner runner(plan);
    Engine engine(plan, runner, tokenizer.get(), {});
    Recorder recorder;
    EngineRequest request = simple({3, 4, 5}, 40);
    engine.add(request, recorder.sink(0, 1));
    recorder.wait();
    const ToldCopy whole = recorder.told(0).copies[0];
    StreamDecoder decoder(*tokenizer);
    decoder.prime(request.prompt);
    std::string text;
    for (const int32_t token : whole.tokens) text += decoder.push(token);
    CHECK(whole.text == text + decoder.finish());
    REQUIRE(whole.text.size() > 8);
    // The end of the text so far, from the middle on.
    const size_t begin = previous_char(whole.text, whole.text.size() / 2);
    request.stop_texts = {"never there", whole.text.substr(begin)};
    engine.add(request, recorder.sink(1, 1));
    recorder.wait();
    CHECK(recorder.told(1).copies[0].text == whole.text.substr(0, begin));
    CHECK(recorder.told(1).copies[0].finish == FinishReason::kStop);
    CHECK(recorder.mistakes().empty());
}

TEST_CASE("log-probabilities of a prompt are those of its tokens, each by the row before it",
          "[runtime][engine]") {
    const planner::Plan plan = plan_of_sizes({2, 64, 8, 0});
    FakeRunner runner(plan);
    Engine engine(plan, runner, nullptr, {});
    Recorder recorder;
    EngineRequest request = simple({}, 0);
    for (int32_t i = 0; i < 30; ++i) request.prompt.push_back(i % 7);
    request.prompt_logprobs = 3;
    engine.add(request, recorder.sink(0, 1));
    request.max_new_tokens = 2;
    engine.add(request, recorder.sink(1, 1));
    recorder.wait();
    CHECK(recorder.mistakes().empty());
    AloneSequence model(engine.limits());
    for (int64_t key = 0; key < 2; ++key) {
        const ToldRequest& told = recorder.told(key);
        CHECK(told.copies[0].finish == FinishReason::kLength);
        CHECK(told.copies[0].tokens.size() == static_cast<size_t>(2 * key));
        REQUIRE(told.prompt_logprobs.size() == 29);
    }
    for (size_t i = 0; i + 1 < request.prompt.size(); ++i) {
        const TokenLogprobs expected =
            logprobs_of(fake_logits(model.add(request.prompt[i])), request.prompt[i + 1], 3);
        for (int64_t key = 0; key < 2; ++key) {
            const TokenLogprobs& told = recorder.told(key).prompt_logprobs[i];
            CHECK(told.chosen.id == expected.chosen.id);
            CHECK(told.chosen.logprob == expected.chosen.logprob);
            CHECK(told.top[2].id == expected.top[2].id);
        }
    }
}

TEST_CASE("requests of a graph that quantises over a whole pass run alone, and the engine says why",
          "[runtime][engine]") {
    planner::Plan plan = plan_of_sizes({4, 64, 64, 0});
    importer::Weight& weight = plan.graph.weights.emplace_back();
    weight.packing = importer::Packing::kDequantizeLinear;
    weight.quantization.dynamic_activations = true;
    FakeRunner runner(plan);
    std::atomic<int64_t> shared{0};
    runner.on_batch = [&](const Batch& batch) {
        const bool has_begun = batch.num_tokens() > 1 && batch.positions[0] != 0;
        shared += batch.num_sequences() != 1 || has_begun ? 1 : 0;
    };
    EngineOptions options;
    options.scheduler.groups = 3;
    Engine engine(plan, runner, nullptr, options);
    CHECK_THAT(engine.runs_alone(), Contains("DynamicQuantizeLinear") && Contains("share no"));
    Recorder recorder;
    const EngineRequest request = simple(std::vector<int32_t>(40, 3), 10);
    for (int64_t key = 0; key < 6; ++key) engine.add(request, recorder.sink(key, 1));
    recorder.wait();
    CHECK(shared == 0);
    for (int64_t key = 0; key < 6; ++key)
        check_as_alone(request, recorder.told(key), engine.limits());
}

TEST_CASE(
    "a fault of a device ends every request once with the fault's text, and the engine says "
    "that it is dead",
    "[runtime][engine]") {
    const planner::Plan plan = plan_of_sizes({});
    FakeRunner runner(plan);
    std::mutex gate;
    std::unique_lock closed(gate);
    runner.before_pass = [&](int64_t pass) {
        const std::lock_guard wait(gate);
        if (pass == 3) throw DeviceError("launch of step 7 (layers.0.attention)", "700", "gpu[1]");
    };
    Recorder recorder;
    EngineOptions options;
    options.scheduler.groups = 2;
    Engine engine(plan, runner, nullptr, options);
    for (int64_t key = 0; key < 20; ++key) {
        EngineRequest request = simple({1, 2, 3}, 30);
        request.copies = 1 + key % 2;
        REQUIRE(engine.add(request, recorder.sink(key, request.copies)).request);
    }
    closed.unlock();
    recorder.wait();
    CHECK(recorder.mistakes().empty());
    for (int64_t key = 0; key < 20; ++key)
        for (const ToldCopy& copy : recorder.told(key).copies) {
            CHECK(copy.finish == FinishReason::kFault);
            CHECK_THAT(copy.message, Contains("step 7 (layers.0.attention)") && Contains("gpu[1]"));
        }
    CHECK_THAT(engine.statistics().fault, Contains("layers.0.attention"));
    const EngineAdmission late = engine.add(simple({1}, 1), [](const EngineEvent&) {});
    CHECK(late.refusal == Refusal::kDead);
    CHECK_THAT(late.reason, Contains("the engine is dead") && Contains("layers.0.attention"));
    CHECK(engine.drain(60s));
}

TEST_CASE("a request whose logits are not numbers ends alone", "[runtime][engine]") {
    const planner::Plan plan = plan_of_sizes({});
    FakeRunner runner(plan);
    runner.poison = 49;
    Engine engine(plan, runner, nullptr, {});
    Recorder recorder;
    std::vector<EngineRequest> requests;
    for (int64_t key = 0; key < 6; ++key) {
        requests.push_back(simple({1, 2, key % 2 ? 49 : 3}, 10));
        // No text goes on to the poisoned token.
        requests.back().sampling.logit_bias = {{49, -100}};
        requests.back().copies = 2;
        requests.back().sampling.temperature = 1;
        if (key == 5) requests.back().prompt_logprobs = 0;
        engine.add(requests.back(), recorder.sink(key, 2));
    }
    recorder.wait();
    CHECK(recorder.mistakes().empty());
    for (int64_t key = 0; key < 6; ++key)
        for (const ToldCopy& copy : recorder.told(key).copies) {
            CHECK(copy.finish == (key % 2 ? FinishReason::kFault : FinishReason::kLength));
            if (key % 2 == 0) continue;
            CHECK(copy.tokens.empty());
            CHECK_THAT(copy.message, Contains("position 2 of request") && Contains("not numbers"));
        }
    check_as_alone(requests[0], recorder.told(0), engine.limits());
    check_nothing_held(engine);
}

TEST_CASE("who is told of a request's end finds nothing of it in the engine", "[runtime][engine]") {
    const planner::Plan plan = plan_of_sizes({});
    FakeRunner runner(plan);
    Engine engine(plan, runner, nullptr, {});
    EngineStatistics at_end;
    engine.add(simple({1, 2}, 5), [&](const EngineEvent& event) {
        if (event.ends_request) at_end = engine.statistics();
    });
    CHECK(engine.drain(60s));
    CHECK(at_end.requests == 0);
    CHECK(at_end.new_tokens == 5);
    CHECK(at_end.finished[static_cast<size_t>(FinishReason::kLength)] == 1);
    CHECK(at_end.scheduler.blocks_held == 0);
}

TEST_CASE("an engine is drained when the last pass of a cancelled request has ended",
          "[runtime][engine]") {
    const planner::Plan plan = plan_of_sizes({});
    FakeRunner runner(plan);
    EngineOptions options;
    options.scheduler.groups = 2;
    Engine engine(plan, runner, nullptr, options);
    // The second request's pass is in flight when the first's token cancels it.
    std::optional<RequestId> second;
    std::mutex gate;
    std::unique_lock closed(gate);
    runner.before_pass = [&](int64_t) { const std::lock_guard wait(gate); };
    engine.add(simple({1, 2}, 1), [&](const EngineEvent&) { engine.cancel(*second); });
    second = engine.add(simple({3, 4}, 20), [](const EngineEvent&) {}).request;
    closed.unlock();
    CHECK(engine.drain(60s));
    CHECK(engine.statistics().oldest_pass_seconds == 0);
    check_nothing_held(engine);
}

TEST_CASE("a sink that throws is not called again, and others go on", "[runtime][engine]") {
    const planner::Plan plan = plan_of_sizes({});
    FakeRunner runner(plan);
    Engine engine(plan, runner, nullptr, {});
    Recorder recorder;
    std::atomic<int> calls{0};
    engine.add(simple({1, 2}, 20), [&](const EngineEvent&) {
        ++calls;
        throw std::runtime_error("gone");
    });
    const EngineRequest request = simple({4, 5}, 20);
    engine.add(request, recorder.sink(0, 1));
    recorder.wait();
    CHECK(engine.drain(60s));
    CHECK(calls == 1);
    check_as_alone(request, recorder.told(0), engine.limits());
    check_nothing_held(engine);
}

TEST_CASE("a sink may add and cancel requests", "[runtime][engine]") {
    const planner::Plan plan = plan_of_sizes({});
    FakeRunner runner(plan);
    Engine engine(plan, runner, nullptr, {});
    Recorder recorder;
    const EventSink second = recorder.sink(1, 1), first = recorder.sink(0, 1);
    engine.add(simple({1, 2}, 20), [&, added = false](const EngineEvent& event) mutable {
        first(event);
        if (added) return;
        added = true;
        engine.add(simple({3}, 3), second);
        engine.cancel(event.request);
    });
    recorder.wait();
    CHECK(recorder.told(0).copies[0].finish == FinishReason::kCancelled);
    CHECK(recorder.told(1).copies[0].finish == FinishReason::kLength);
    CHECK(recorder.mistakes().empty());
}

TEST_CASE("what an engine cannot take is refused with its reason", "[runtime][engine]") {
    const planner::Plan plan = plan_of_sizes({2, 32, 8, 0});
    FakeRunner runner(plan);
    std::mutex gate;
    std::unique_lock closed(gate);
    runner.before_pass = [&](int64_t) { const std::lock_guard wait(gate); };
    EngineOptions options;
    options.scheduler.max_queue = 2;
    Engine engine(plan, runner, nullptr, options);
    const EventSink none = [](const EngineEvent&) {};
    const EngineAdmission never = engine.add(simple({1, 2, 3}, 30), none);
    CHECK(never.refusal == Refusal::kNeverFits);
    CHECK_THAT(never.reason, Contains("32"));
    EngineAdmission last;
    for (int i = 0; i < 10 && last.refusal == Refusal::kNone; ++i)
        last = engine.add(simple({1}, 4), none);
    CHECK(last.refusal == Refusal::kQueueFull);
    CHECK_FALSE(last.reason.empty());
    closed.unlock();
    CHECK(engine.drain(60s));
    const EngineAdmission late = engine.add(simple({1}, 4), none);
    CHECK(late.refusal == Refusal::kDraining);
    CHECK_THAT(late.reason, Contains("takes no more requests"));
    check_nothing_held(engine);
}

TEST_CASE("a request that is wrong in itself is refused by what is wrong", "[runtime][engine]") {
    const planner::Plan plan = plan_of_sizes({});
    FakeRunner runner(plan);
    Engine engine(plan, runner, nullptr, {});
    const auto refused = [&](auto&& change) {
        EngineRequest request = simple({1, 2}, 3);
        change(request);
        return failure_of<UserError>([&] { engine.add(request, [](const EngineEvent&) {}); });
    };
    CHECK_THAT(refused([](auto& r) { r.prompt.clear(); }), Contains("the prompt is empty"));
    CHECK_THAT(refused([](auto& r) { r.prompt = {50}; }),
               Contains("the prompt has token id 50; this model's ids are 0 to 49"));
    CHECK_THAT(refused([](auto& r) { r.stop_ids = {-1}; }),
               Contains("the list of stop ids has token id -1"));
    CHECK_THAT(refused([](auto& r) { r.copies = 0; }), Contains("0 texts of one prompt"));
    CHECK_THAT(refused([](auto& r) { r.max_new_tokens = -1; }), Contains("-1 is negative"));
    CHECK_THAT(refused([](auto& r) { r.max_new_tokens = 0; }),
               Contains("asks for nothing but the prompt's log-probabilities"));
    CHECK_THAT(refused([](auto& r) { r.stop_texts = {"a"}; }), Contains("need a tokenizer"));
    CHECK_THAT(refused([](auto& r) { r.sampling.top_p = 2; }), Contains("$top_p"));
    CHECK_THAT(refused([](auto& r) { r.logprobs = 21; }), Contains("$logprobs 21"));
    EngineOptions many;
    many.scheduler.groups = 9;
    CHECK_THAT(failure_of<UserError>([&] { Engine(plan, runner, nullptr, many); }),
               Contains("9 groups of sequences; at most 8"));
}

TEST_CASE("shutting down cancels what runs and what waits, each request once",
          "[runtime][engine]") {
    const planner::Plan plan = plan_of_sizes({2, 64, 8, 0});
    FakeRunner runner(plan);
    // The first pass ends when the engine is ending.
    std::mutex gate;
    std::unique_lock closed(gate);
    std::atomic<bool> runs{false};
    runner.before_pass = [&](int64_t) {
        runs = true;
        const std::lock_guard wait(gate);
    };
    Recorder recorder;
    Engine engine(plan, runner, nullptr, {});
    for (int64_t key = 0; key < 30; ++key)
        REQUIRE(engine.add(simple({1, 2, 3}, 50), recorder.sink(key, 1)).request);
    while (!runs) std::this_thread::yield();
    std::thread ending([&] { engine.shutdown(); });
    const EventSink none = [](const EngineEvent&) {};
    while (engine.add(simple({1}, 1), none).refusal != Refusal::kDraining)
        std::this_thread::yield();
    CHECK_FALSE(engine.drain(0s));
    closed.unlock();
    ending.join();
    recorder.wait();
    CHECK(recorder.mistakes().empty());
    for (int64_t key = 0; key < 30; ++key)
        CHECK(recorder.told(key).copies[0].finish == FinishReason::kCancelled);
    check_nothing_held(engine);
}
