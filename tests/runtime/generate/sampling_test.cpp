// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "runtime/base/errors.h"
#include "runtime/execute/greedy.h"
#include "runtime/generate/logprobs.h"
#include "runtime/generate/philox.h"
#include "runtime/generate/sampling.h"
#include "tests/support/failures.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;

namespace {

std::vector<float> random_logits(size_t vocab, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0f, 3.0f);
    std::vector<float> logits(vocab);
    for (float& logit : logits) logit = normal(random);
    return logits;
}

std::set<int32_t> drawn(const std::vector<float>& logits, const SamplingOptions& options,
                        const TokenCounts& counts = {}) {
    std::set<int32_t> ids;
    for (uint64_t i = 0; i < 3000; ++i) ids.insert(sample_token(logits, options, 0, i, counts));
    return ids;
}

SamplingOptions hot() {
    SamplingOptions options;
    options.temperature = 1.0f;
    return options;
}

// As the options were before they had filters and penalties: temperature and nucleus alone.
int32_t plain_draw(const std::vector<float>& logits, float temperature, uint64_t seed,
                   uint64_t sequence, uint64_t position) {
    const float most = *std::max_element(logits.begin(), logits.end());
    std::vector<double> weights;
    double total = 0;
    for (const float logit : logits) {
        weights.push_back(std::exp((static_cast<double>(logit) - most) / temperature));
        total += weights.back();
    }
    double left = uniform_draw(seed, sequence, position) * total;
    for (size_t i = 0; i < weights.size(); ++i) {
        if (left < weights[i]) return static_cast<int32_t>(i);
        left -= weights[i];
    }
    return -1;
}

}  // namespace

TEST_CASE("one most likely token to draw from is the greedy choice", "[runtime]") {
    for (uint32_t seed = 0; seed < 50; ++seed) {
        std::vector<float> logits = random_logits(100, seed);
        logits[seed] = logits[99 - seed];
        SamplingOptions options = hot();
        options.top_k = 1;
        CHECK(sample_token(logits, options, seed, 7) == largest_logit(logits));
        options.top_k = 0;
        options.min_p = 1.0f;
        logits[seed] -= 1e-3f;
        CHECK(sample_token(logits, options, seed, 7) == largest_logit(logits));
    }
}

TEST_CASE("top-k draws from the k most likely tokens, lower ids first among equals", "[runtime]") {
    const std::vector<float> logits{1.0f, 2.0f, 1.0f, 1.5f, 1.0f, -9.0f};
    SamplingOptions options = hot();
    options.top_k = 2;
    CHECK(drawn(logits, options) == std::set<int32_t>{1, 3});
    options.top_k = 4;
    CHECK(drawn(logits, options) == std::set<int32_t>{0, 1, 2, 3});
}

TEST_CASE("filters that leave every token change no draw", "[runtime]") {
    const std::vector<float> logits = random_logits(200, 5);
    SamplingOptions all = hot();
    all.seed = 9;
    all.temperature = 0.8f;
    for (const int32_t k : {0, 200, 1000}) {
        all.top_k = k;
        for (uint64_t i = 0; i < 300; ++i)
            CHECK(sample_token(logits, all, 3, i) == plain_draw(logits, 0.8f, 9, 3, i));
    }
}

TEST_CASE("min-p draws from tokens at least that many times as likely as the likeliest",
          "[runtime]") {
    const std::vector<float> logits{std::log(0.4f), std::log(0.3f), std::log(0.19f),
                                    std::log(0.11f)};
    SamplingOptions options = hot();
    options.min_p = 0.4f;  // 0.16 and more
    CHECK(drawn(logits, options) == std::set<int32_t>{0, 1, 2});
    options.min_p = 0.5f;  // 0.2 and more
    CHECK(drawn(logits, options) == std::set<int32_t>{0, 1});
    // The temperature comes first: at 2 the ratios are their square roots.
    options.temperature = 2.0f;
    CHECK(drawn(logits, options) == std::set<int32_t>{0, 1, 2, 3});
}

TEST_CASE("the nucleus is of what top-k and min-p leave, summing to one again", "[runtime]") {
    // Probabilities 0.4, 0.3, 0.2, 0.1.
    const std::vector<float> logits{std::log(0.4f), std::log(0.3f), std::log(0.2f), std::log(0.1f)};
    SamplingOptions options = hot();
    options.top_p = 0.65f;
    CHECK(drawn(logits, options) == std::set<int32_t>{0, 1});
    options.top_k = 3;  // 4/9, 3/9, 2/9
    CHECK(drawn(logits, options) == std::set<int32_t>{0, 1});
    options.top_k = 2;  // 4/7, 3/7
    options.top_p = 0.55f;
    CHECK(drawn(logits, options) == std::set<int32_t>{0});
    options.top_k = 0;
    CHECK(drawn(logits, options) == std::set<int32_t>{0, 1});
    options.min_p = 0.7f;
    CHECK(drawn(logits, options) == std::set<int32_t>{0});
}

TEST_CASE("penalties touch the logits of tokens that were seen and no others", "[runtime]") {
    TokenCounts counts;
    const std::vector<int32_t> prompt{1, 2, 2};
    counts.add_prompt(prompt);
    for (const int32_t id : {3, 4, 4, 2}) counts.add(id);
    const std::vector<float> logits{1, 1, -2, 4, 8, 0.5f, -1};
    const auto adjusted = [&](const SamplingOptions& options) {
        std::vector<float> row = logits;
        adjust_logits(row, options, counts);
        return row;
    };
    SamplingOptions repetition, presence, frequency, bias;
    repetition.repetition_penalty = 2.0f;
    CHECK(adjusted(repetition) == std::vector<float>{1, 0.5f, -4, 2, 4, 0.5f, -1});
    presence.presence_penalty = 0.5f;
    CHECK(adjusted(presence) == std::vector<float>{1, 1, -2.5f, 3.5f, 7.5f, 0.5f, -1});
    frequency.frequency_penalty = 0.5f;
    CHECK(adjusted(frequency) == std::vector<float>{1, 1, -2.5f, 3.5f, 7, 0.5f, -1});
    bias.logit_bias = {{0, 3}, {6, -1}, {0, 1}};
    CHECK(adjusted(bias) == std::vector<float>{5, 1, -2, 4, 8, 0.5f, -2});
    CHECK(adjusted({}) == logits);
}

TEST_CASE("the bias comes before the repetition penalty, and the others after it", "[runtime]") {
    TokenCounts counts;
    counts.add(0);
    SamplingOptions options;
    options.logit_bias = {{0, 5}};
    options.repetition_penalty = 2.0f;
    options.presence_penalty = 1.0f;
    options.frequency_penalty = 0.25f;
    std::vector<float> logits{-1, 0};
    adjust_logits(logits, options, counts);
    CHECK(logits == std::vector<float>{(-1 + 5) / 2.0f - 1 - 0.25f, 0});
}

TEST_CASE("a greedy choice is made of the logits with their biases and penalties", "[runtime]") {
    const std::vector<float> logits{1, 3, 2};
    SamplingOptions options;
    CHECK(takes_largest_logit(options));
    CHECK(sample_token(logits, options, 0, 0) == 1);
    options.frequency_penalty = 2.0f;
    CHECK_FALSE(takes_largest_logit(options));
    TokenCounts counts;
    CHECK(sample_token(logits, options, 0, 0, counts) == 1);
    counts.add(1);
    CHECK(sample_token(logits, options, 0, 0, counts) == 2);
    SamplingOptions biased;
    biased.logit_bias = {{0, 100}};
    CHECK_FALSE(takes_largest_logit(biased));
    CHECK(sample_token(logits, biased, 0, 0) == 0);
}

TEST_CASE("a bias of -100 bans a token, and one of 100 forces it", "[runtime]") {
    const std::vector<float> logits{5, 4, 3};
    SamplingOptions options = hot();
    options.logit_bias = {{0, -100}};
    CHECK(drawn(logits, options) == std::set<int32_t>{1, 2});
    options.logit_bias = {{2, 100}};
    CHECK(drawn(logits, options) == std::set<int32_t>{2});
}

TEST_CASE("a draw with filters and penalties depends on its own tokens, seed and place alone",
          "[runtime]") {
    const std::vector<float> logits = random_logits(500, 1);
    SamplingOptions options = hot();
    options.top_k = 50;
    options.top_p = 0.9f;
    options.min_p = 0.02f;
    options.repetition_penalty = 1.2f;
    TokenCounts counts;
    counts.add_prompt(std::vector<int32_t>{4, 8, 15});
    std::vector<int32_t> first, second;
    for (uint64_t i = 0; i < 100; ++i) first.push_back(sample_token(logits, options, 2, i, counts));
    for (uint64_t i = 100; i-- > 0;)
        second.insert(second.begin(), sample_token(logits, options, 2, i, counts));
    CHECK(first == second);
}

TEST_CASE("log-probabilities of all tokens sum to one, most likely first, lower ids among equals",
          "[runtime]") {
    std::vector<float> logits = random_logits(18, 3);
    logits[4] = logits[11];
    double sum = 0;
    for (int32_t id = 0; id < 18; ++id)
        sum += std::exp(static_cast<double>(logprobs_of(logits, id, 0).chosen.logprob));
    CHECK(sum == Approx(1.0));
    const TokenLogprobs all = logprobs_of(logits, 4, 20);
    REQUIRE(all.top.size() == 18);
    for (size_t i = 1; i < all.top.size(); ++i) {
        const TokenLogprob &before = all.top[i - 1], &after = all.top[i];
        CHECK((before.logprob > after.logprob ||
               (before.logprob == after.logprob && before.id < after.id)));
    }
    CHECK(all.top[static_cast<size_t>(all.rank)].id == 4);
    CHECK(all.top[static_cast<size_t>(all.rank)].logprob == all.chosen.logprob);
    const TokenLogprobs few = logprobs_of(logits, 4, 3);
    REQUIRE(few.top.size() == 3);
    for (size_t i = 0; i < 3; ++i) CHECK(few.top[i].id == all.top[i].id);
}

TEST_CASE("log-probabilities are of huge logits, too, and minus infinity where a logit is",
          "[runtime]") {
    const float none = -std::numeric_limits<float>::infinity();
    const TokenLogprobs row = logprobs_of(std::vector<float>{1e30f, none, 1e30f}, 0, 3);
    CHECK(row.chosen.logprob == Approx(std::log(0.5)));
    CHECK(row.top[2].logprob == none);
}

TEST_CASE(
    "the greedy choice is the first of the largest logits at any place, and none beside a NaN",
    "[runtime]") {
    const float inf = std::numeric_limits<float>::infinity();
    for (const size_t vocab : {1, 15, 16, 17, 1023, 1024, 1025, 5000}) {
        std::vector<float> logits = random_logits(vocab, 3);
        const auto expected = [&] {
            return std::max_element(logits.begin(), logits.end()) - logits.begin();
        };
        CHECK(largest_logit(logits) == expected());
        for (const size_t place : {size_t{0}, vocab / 2, vocab - 1}) {
            INFO(vocab << " logits, " << place);
            std::vector<float> changed = logits;
            changed[place] = changed[vocab - 1] = 50;
            CHECK(largest_logit(changed) == static_cast<int32_t>(place));
            changed[place] = std::nanf("");
            CHECK(largest_logit(changed) == kNoToken);
            CHECK(!are_numbers(changed));
        }
        std::fill(logits.begin(), logits.end(), -inf);
        CHECK(largest_logit(logits) == 0);
        logits[vocab - 1] = inf;
        CHECK(largest_logit(logits) == static_cast<int32_t>(vocab - 1));
        logits.assign(vocab, -0.0f);
        logits[vocab - 1] = 0.0f;  // equal, and later
        CHECK(largest_logit(logits) == 0);
    }
}

TEST_CASE("an option of the sampling that is out of its range is refused by its name",
          "[runtime]") {
    const auto refused = [](auto&& change) {
        SamplingOptions options;
        change(options);
        return failure_of<UserError>([&] { check_sampling(options, 100); });
    };
    using Catch::Matchers::Contains;
    const float nan = std::nanf("");
    CHECK_THAT(refused([&](auto& o) { o.temperature = nan; }),
               Contains("$temperature nan: it is a number from 0 to 100"));
    CHECK_THAT(refused([](auto& o) { o.top_p = 1.5f; }),
               Contains("$top_p 1.5: it is a number from 0 to 1"));
    CHECK_THAT(refused([](auto& o) { o.min_p = -0.5f; }), Contains("$min_p -0.5"));
    CHECK_THAT(refused([](auto& o) { o.presence_penalty = 3; }), Contains("$presence_penalty 3"));
    CHECK_THAT(refused([](auto& o) { o.frequency_penalty = -3; }),
               Contains("$frequency_penalty -3"));
    CHECK_THAT(refused([](auto& o) { o.top_k = -1; }),
               Contains("$top_k -1: it is a count of tokens; 0 stands for all"));
    CHECK_THAT(refused([](auto& o) { o.repetition_penalty = 0; }),
               Contains("$repetition_penalty 0: it is above 0 and at most 10"));
    CHECK_THAT(refused([](auto& o) { o.logit_bias = {{100, 1}}; }),
               Contains("$logit_bias names token id 100; this model's ids are 0 to 99"));
    CHECK_THAT(refused([](auto& o) { o.logit_bias = {{1, 101}}; }),
               Contains("$logit_bias 101 of token id 1: it is a number from -100 to 100"));
    CHECK_THAT(failure_of<UserError>([] { check_top_logprobs(21); }),
               Contains("$logprobs 21: it is a count of tokens from 0 to 20"));
    CHECK_NOTHROW(check_sampling({}, 1));
}
