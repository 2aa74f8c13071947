// SPDX-License-Identifier: Apache-2.0
// Texts that keep a rule. That they are the same alone and in company, preempted or not, is tested
// with all other requests (engine_test.cpp).
#include "runtime/engine/token_rule.h"

#include "runtime/base/errors.h"
#include "tests/runtime/engine/engine_support.h"
#include "tests/support/test.h"

namespace cleave::runtime {

using namespace cleave::test;
using Catch::Matchers::Contains;

namespace {

EngineRequest ruled(TokenRuleMaker rule) {
    EngineRequest request;
    request.prompt = {1, 2, 3};
    request.max_new_tokens = 20;
    request.rule = std::move(rule);
    return request;
}

// What each copy was told.
std::vector<ToldCopy> answer(const EngineRequest& request) {
    const planner::Plan plan = plan_of_sizes({});
    FakeRunner runner(plan);
    Recorder recorder;
    Engine engine(plan, runner, nullptr, {});
    REQUIRE(engine.add(request, recorder.sink(0, request.copies)).request);
    recorder.wait();
    CHECK(recorder.mistakes().empty());
    CHECK(engine.statistics().fault.empty());
    return recorder.told(0).copies;
}

struct NothingFollows : TokenRule {
    std::span<const uint32_t> allowed() override { return words; }
    bool take(int32_t) override { return false; }
    std::vector<uint32_t> words{0, 0};
};

struct Throws : NothingFollows {
    std::span<const uint32_t> allowed() override { throw UserError("a broken rule"); }
};

struct OneToken : NothingFollows {
    explicit OneToken(int32_t id) { words[static_cast<size_t>(id / 32)] |= 1u << (id % 32); }
};

}  // namespace

TEST_CASE("a text ends where its rule says that it is whole, each copy for itself",
          "[runtime][engine]") {
    EngineRequest request = ruled([] { return std::make_unique<RuleOfThree>(5); });
    request.copies = 3;
    request.sampling.temperature = 1;
    const std::vector<ToldCopy> copies = answer(request);
    for (const ToldCopy& copy : copies) {
        CHECK(copy.finish == FinishReason::kStop);
        REQUIRE(copy.tokens.size() == 5);
        for (size_t i = 1; i < copy.tokens.size(); ++i)
            CHECK(copy.tokens[i] % 3 != copy.tokens[i - 1] % 3);
    }
    CHECK(copies[0].tokens != copies[1].tokens);
}

TEST_CASE("a rule holds against every way of sampling", "[runtime][engine]") {
    const auto draw = GENERATE(0, 1, 2, 3, 4);
    EngineRequest request = ruled([] { return std::make_unique<OneToken>(37); });
    SamplingOptions& sampling = request.sampling;
    if (draw > 0) sampling.temperature = 1;
    if (draw == 1) sampling.top_k = 1;
    if (draw == 2) sampling.top_p = 0;
    if (draw == 3) sampling.min_p = 1;
    if (draw == 4) sampling.logit_bias = {{37, -100.0f}, {12, 100.0f}};
    CHECK(answer(request)[0].tokens == std::vector<int32_t>(20, 37));
}

TEST_CASE("a rule that no token can keep, or that fails, ends its request with a fault",
          "[runtime][engine]") {
    const ToldCopy none = answer(ruled([] { return std::make_unique<NothingFollows>(); }))[0];
    CHECK(none.finish == FinishReason::kFault);
    CHECK_THAT(none.message, Contains("no token of the vocabulary"));
    CHECK(none.tokens.empty());
    const ToldCopy thrown = answer(ruled([] { return std::make_unique<Throws>(); }))[0];
    CHECK(thrown.finish == FinishReason::kFault);
    CHECK_THAT(thrown.message, Contains("a broken rule"));
}

}  // namespace cleave::runtime
