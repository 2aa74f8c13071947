// SPDX-License-Identifier: Apache-2.0
// The KV pool as sessions use it: logits do not depend on which blocks a sequence has, on a pool
// without room for whole contexts, or on whether a block was computed or copied.
#include <numeric>
#include <random>

#include "planner/plan/kv_room.h"
#include "runtime/generate/batching.h"
#include "runtime/generate/generate.h"
#include "tests/e2e/support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;
using namespace cleave::runtime;
using Catch::Matchers::Contains;

namespace {

constexpr int64_t kContext = 64, kPerSlot = 4;
const std::vector<DeviceShape> kPoolShapes{{"one host", "host[0]", 1, 1},
                                           {"three hosts", "host[0-2]", 3, 1},
                                           {"two stages", "host[0-1]", 1, 2},
                                           {"a card", "simt:sm_80[0]", 1, 1}};

std::vector<int32_t> tokens_of(int count, int seed) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    std::vector<int32_t> tokens;
    for (int i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(random() % 100));
    return tokens;
}

// Prompts of 37 and 9 tokens in chunks, then four steps of both, with that table.
std::vector<std::vector<float>> logits_of(Session& session, const std::vector<int32_t>& blocks) {
    const std::vector<std::vector<int32_t>> prompts{tokens_of(37, 1), tokens_of(9, 2)};
    std::vector<Batch> passes;
    for (PrefillPass& pass : make_prefill_passes(prompts, 16, true))
        passes.push_back(std::move(pass.batch));
    for (int step = 0; step < 4; ++step)
        passes.push_back(make_decode_pass(
            std::vector<LiveSequence>{{0, step, 37 + step}, {1, 50 + step, 9 + step}}));
    for (Batch& pass : passes) pass.blocks = blocks;
    return session.run(passes);
}

planner::Workload workload_of(int64_t kv_tokens) {
    planner::Workload workload = all_logits_workload(2, kContext, 16);
    workload.kv_tokens = kv_tokens;
    return workload;
}

}  // namespace

TEST_CASE("logits do not depend on which blocks of the pool a sequence has", "[e2e]") {
    const importer::Graph graph = random_model(small_shape(), 5);
    for (const DeviceShape& shape : kPoolShapes) {
        INFO(shape.name);
        planner::Plan whole = plan_for(graph, shape, workload_of(0));
        planner::Plan large = plan_for(graph, shape, workload_of(20 * planner::kKvBlock));
        Session first(whole, checked_options()), second(large, checked_options());
        const auto wanted = logits_of(first, {});
        CHECK(logits_of(second, {}) == wanted);
        CHECK(logits_of(second, {20, 3, 11, 0, 1, 0, 0, 0}) == wanted);
        CHECK(logits_of(first, {8, 7, 6, 5, 4, 3, 2, 1}) == wanted);
    }
}

TEST_CASE("a sequence goes on from blocks that it shares and copies as from its own", "[e2e]") {
    const importer::Graph graph = random_model(small_shape(), 5);
    for (const DeviceShape& shape : kPoolShapes) {
        INFO(shape.name);
        planner::Plan plan = plan_for(graph, shape, workload_of(0));
        Session session(plan, checked_options());
        const std::vector<std::vector<int32_t>> prompt{tokens_of(37, 3)};
        std::vector<Batch> passes;
        for (PrefillPass& pass : make_prefill_passes(prompt, 16, false))
            passes.push_back(std::move(pass.batch));
        for (Batch& pass : passes) pass.blocks = {6, 2, 7, 0, 0, 0, 0, 0};
        session.run(passes);
        // Two full blocks are shared, the third has 5 positions and is copied.
        Batch both = make_decode_pass(std::vector<LiveSequence>{{0, 11, 37}, {1, 11, 37}});
        both.blocks = {6, 2, 7, 0, 6, 2, 4, 0};
        both.copies = {{7, 4}};
        Batch apart = make_decode_pass(std::vector<LiveSequence>{{0, 12, 38}, {1, 13, 38}});
        apart.blocks = both.blocks;
        Batch again = make_decode_pass(std::vector<LiveSequence>{{0, 14, 39}, {1, 14, 39}});
        again.blocks = both.blocks;
        const auto logits = session.run(std::vector<Batch>{both, apart, again});
        const auto half = [](const std::vector<float>& rows, bool second) {
            const auto middle = rows.begin() + std::ssize(rows) / 2;
            return second ? std::vector<float>(middle, rows.end())
                          : std::vector<float>(rows.begin(), middle);
        };
        CHECK(half(logits[0], false) == half(logits[0], true));
        CHECK(half(logits[1], false) != half(logits[1], true));
        CHECK(half(logits[2], false) != half(logits[2], true));
    }
}

TEST_CASE("prompts that the pool has room for run in it, and more are refused with the tokens",
          "[e2e]") {
    const importer::Graph graph = random_model(small_shape(), 5);
    planner::Plan whole = plan_for(graph, kPoolShapes[0], workload_of(0));
    planner::Plan small = plan_for(graph, kPoolShapes[0], workload_of(kContext));
    Session first(whole, checked_options()), second(small, checked_options());
    const std::vector<std::vector<int32_t>> prompts{tokens_of(21, 1), tokens_of(9, 2)};
    const auto run = [&](Session& session, const planner::Plan& plan, int64_t new_tokens) {
        GenerateOptions options;
        options.max_new_tokens = new_tokens;
        std::vector<std::vector<int32_t>> tokens;
        for (SequenceResult& s : generate(session, plan, prompts, options).sequences)
            tokens.push_back(std::move(s.token_ids));
        return tokens;
    };
    CHECK(run(second, small, 11) == run(first, whole, 11));
    CHECK_THAT(user_error([&] { run(second, small, 12); }),
               Contains("the KV pool has 64 tokens") && Contains("$kv_tokens 80"));
}
