// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "runtime/execute/executor.h"
#include "runtime/execute/greedy.h"
#include "runtime/generate/batching.h"
#include "runtime/generate/generate.h"
#include "runtime/generate/philox.h"
#include "runtime/load/upload.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;

namespace {

planner::Workload small_workload() {
    planner::Workload workload;
    workload.batch = 3;
    workload.context = 64;
    workload.prefill_chunk = 8;
    return workload;
}

}  // namespace

TEST_CASE("Philox gives the published vectors", "[runtime]") {
    // Random123's kat_vectors, philox4x32 with 10 rounds.
    CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) ==
          std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    CHECK(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) ==
          std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
          std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("greedy sampling takes the most likely token, the lowest id among equals", "[runtime]") {
    std::vector<float> logits{0.5f, 2.0f, -1.0f, 2.0f};
    CHECK(sample_token(logits, {}, 0, 0) == 1);
    logits[0] = std::numeric_limits<float>::infinity();
    CHECK(sample_token(logits, {}, 3, 9) == 0);
}

TEST_CASE("logits that are no numbers give no token", "[runtime]") {
    std::vector<float> logits{0.0f, std::nanf(""), 1.0f};
    CHECK(largest_logit(logits) == kNoToken);
    CHECK(sample_token(logits, {}, 0, 0) == kNoToken);
    CHECK(sample_token(logits, {1.0f}, 0, 0) == kNoToken);
}

TEST_CASE("a draw depends on seed, sequence and position and on nothing else", "[runtime]") {
    std::vector<float> logits(1000, 0.0f);
    SamplingOptions options{1.0f, 1.0f, 42};
    int32_t first = sample_token(logits, options, 1, 5);
    CHECK(sample_token(logits, options, 1, 5) == first);
    std::set<int32_t> tokens;
    for (uint64_t position = 0; position < 20; ++position)
        tokens.insert(sample_token(logits, options, 0, position));
    for (uint64_t sequence = 1; sequence < 20; ++sequence)
        tokens.insert(sample_token(logits, options, sequence, 0));
    for (uint64_t seed = 0; seed < 20; ++seed) {
        options.seed = seed;
        tokens.insert(sample_token(logits, options, 0, 0));
    }
    CHECK(tokens.size() > 50);
}

TEST_CASE("sampled tokens have the distribution of the softmax at that temperature", "[runtime]") {
    std::vector<float> logits{0.0f, 1.0f, 2.0f, -3.0f};
    SamplingOptions options{0.7f, 1.0f, 7};
    constexpr int kDraws = 40000;
    std::map<int32_t, int> counts;
    for (int i = 0; i < kDraws; ++i)
        ++counts[sample_token(logits, options, 0, static_cast<uint64_t>(i))];
    double total = 0;
    for (float logit : logits) total += std::exp(logit / 0.7);
    for (int32_t id = 0; id < 4; ++id) {
        double p = std::exp(logits[static_cast<size_t>(id)] / 0.7) / total;
        double deviation = std::sqrt(kDraws * p * (1 - p));
        CHECK(std::abs(counts[id] - kDraws * p) < 5 * deviation + 1);
    }
}

TEST_CASE("top-p draws only from the smallest set that reaches it", "[runtime]") {
    // Probabilities 0.5, 0.3, 0.15, 0.05.
    std::vector<float> logits{std::log(0.3f), std::log(0.5f), std::log(0.05f), std::log(0.15f)};
    auto drawn = [&](float top_p) {
        std::set<int32_t> ids;
        for (uint64_t i = 0; i < 2000; ++i)
            ids.insert(sample_token(logits, {1.0f, top_p, 3}, 0, i));
        return ids;
    };
    CHECK(drawn(0.4f) == std::set<int32_t>{1});
    CHECK(drawn(0.7f) == std::set<int32_t>{0, 1});
    CHECK(drawn(0.9f) == std::set<int32_t>{0, 1, 3});
    CHECK(drawn(1.0f) == std::set<int32_t>{0, 1, 2, 3});
    CHECK(drawn(0.0f) == std::set<int32_t>{1});
}

TEST_CASE("prompts of unequal length fill prefill passes without gaps, each token once, in order",
          "[runtime]") {
    std::vector<std::vector<int32_t>> prompts{{10, 11, 12}, std::vector<int32_t>(13, 7), {20}};
    auto passes = make_prefill_passes(prompts, 8, false);
    REQUIRE(passes.size() == 3);
    CHECK(passes[0].batch.num_tokens() == 8);
    CHECK(passes[1].batch.num_tokens() == 8);
    CHECK(passes[2].batch.num_tokens() == 1);
    CHECK(passes[0].batch.sequence_starts == std::vector<int32_t>{0, 3, 8});
    CHECK(passes[0].output_sequences == std::vector<size_t>{0});
    CHECK(passes[1].batch.positions.front() == 5);
    CHECK(passes[1].output_sequences == std::vector<size_t>{1});
    CHECK(passes[2].output_sequences == std::vector<size_t>{2});
    std::vector<std::vector<int32_t>> seen(3);
    for (const auto& pass : passes) {
        CHECK_NOTHROW(check_batch(pass.batch, small_workload()));
        for (size_t i = 0; i < pass.batch.token_ids.size(); ++i) {
            auto& sequence = seen[static_cast<size_t>(pass.batch.slots[i])];
            CHECK(pass.batch.positions[i] == static_cast<int32_t>(sequence.size()));
            sequence.push_back(pass.batch.token_ids[i]);
        }
    }
    CHECK(seen == prompts);
}

TEST_CASE("all logits are one row for each prompt token", "[runtime]") {
    std::vector<std::vector<int32_t>> prompts{std::vector<int32_t>(5, 1),
                                              std::vector<int32_t>(6, 2)};
    std::vector<size_t> rows(2, 0);
    for (const auto& pass : make_prefill_passes(prompts, 4, true)) {
        CHECK(pass.batch.num_outputs() == pass.batch.num_tokens());
        for (size_t s : pass.output_sequences) ++rows[s];
    }
    CHECK(rows == std::vector<size_t>{5, 6});
}

TEST_CASE("a decode pass has one token of each live sequence in its own slot", "[runtime]") {
    std::vector<LiveSequence> live{{0, 5, 9}, {2, 6, 3}};
    Batch batch = make_decode_pass(live);
    CHECK_FALSE(batch.is_prefill);
    CHECK(batch.token_ids == std::vector<int32_t>{5, 6});
    CHECK(batch.positions == std::vector<int32_t>{9, 3});
    CHECK(batch.slots == std::vector<int32_t>{0, 2});
    CHECK(batch.sequence_starts == std::vector<int32_t>{0, 1, 2});
    CHECK(batch.output_rows == std::vector<int32_t>{0, 1});
    CHECK_NOTHROW(check_batch(batch, small_workload()));
}

TEST_CASE("rotary tables are cos then sin of position times frequency, times the magnitude",
          "[runtime]") {
    importer::RopeTable table;
    table.frequencies = {1.0f, 0.01f};
    table.magnitude = 2.0;
    table.rotary_dim = 4;
    std::vector<float> values = rope_table_from_frequencies(table, 3);
    REQUIRE(values.size() == 12);
    CHECK(values[0] == 2.0f);
    CHECK(values[6] == 0.0f);
    CHECK(values[2 * 2 + 0] == Approx(2.0 * std::cos(2.0)));
    CHECK(values[6 + 2 * 2 + 1] == Approx(2.0 * std::sin(2.0 * 0.01f)));
}
