// SPDX-License-Identifier: Apache-2.0
// A sequence's logits do not depend on what it shares passes and devices with.
#include <fmt/format.h>

#include "runtime/generate/generate.h"
#include "runtime/generate/philox.h"
#include "tests/e2e/support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;

namespace {

std::vector<int32_t> random_prompt(uint64_t seed, int64_t length) {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < length; ++i)
        tokens.push_back(
            static_cast<int32_t>(uniform_draw(seed, 0, static_cast<uint64_t>(i)) *
                                 static_cast<double>(small_shape().config.vocab_size)));
    return tokens;
}

importer::Graph four_layers() {
    models::Shape shape = small_shape();
    shape.config.num_layers = 4;
    return random_model(shape, 11);
}

// Logits of each token of sequence `which`, its prompt's and six more.
std::vector<float> logits_of(const importer::Graph& graph, const DeviceShape& shape, int64_t chunk,
                             const std::vector<std::vector<int32_t>>& prompts, size_t which) {
    const auto batch = static_cast<int64_t>(prompts.size());
    planner::Plan plan = plan_for(graph, shape, all_logits_workload(batch, 96, chunk));
    SessionOptions on = checked_options();
    on.compile.reproducible = true;
    Session session(plan, on);
    GenerateOptions options;
    options.max_new_tokens = 7;
    options.keep_logits = true;
    return generate(session, plan, prompts, options).sequences[which].logits;
}

}  // namespace

TEST_CASE("a sequence's logits have the same bits alone, in company, in chunks and on pipelines",
          "[e2e]") {
    const importer::Graph graph = four_layers();
    const std::vector<int32_t> prompt = random_prompt(1, 45);
    const DeviceShape one{"one device", "host", 1, 1};
    const std::vector<float> alone = logits_of(graph, one, 64, {prompt}, 0);
    REQUIRE(alone.size() == static_cast<size_t>((45 + 6) * small_shape().config.vocab_size));
    for (int64_t chunk : {1, 2, 3, 4, 7, 8, 9, 16, 33}) {
        CAPTURE(chunk);
        CHECK(logits_of(graph, one, chunk, {prompt}, 0) == alone);
    }
    for (size_t others : {1, 2, 11})
        for (size_t slot : {size_t{0}, others / 2, others}) {
            std::vector<std::vector<int32_t>> prompts;
            for (size_t i = 0; i <= others; ++i)
                prompts.push_back(
                    i == slot ? prompt : random_prompt(2 + i, static_cast<int64_t>(3 + 7 * i)));
            CAPTURE(others, slot);
            CHECK(logits_of(graph, one, 37, prompts, slot) == alone);
        }
    for (int stages : {2, 3, 4}) {
        CAPTURE(stages);
        const std::string devices = fmt::format("host[0-{}]", stages - 1);
        CHECK(logits_of(graph, {"stages", devices.c_str(), 1, stages}, 19,
                        {random_prompt(3, 30), prompt}, 1) == alone);
    }
}
