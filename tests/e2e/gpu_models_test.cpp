// SPDX-License-Identifier: Apache-2.0
// Whole models through the CUDA and HIP drivers, on fakes of the vendors' libraries whose cards the CPU imitates: kernels
// compiled from the same source, every access checked. The same tokens as the host.
#include <filesystem>

#include "importer/import.h"
#include "runtime/generate.h"
#include "tests/e2e/support.h"
#include "tests/runtime/fake_gpus.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;
using planner::DeviceKind;
using runtime::test::InstalledFake;

namespace {

const DeviceShape kOneHost{"host", "host[0]", 1, 1};

importer::Graph bundled_model() {
    return importer::import_onnx(
        (std::filesystem::path(CLEAVE_SOURCE_DIR) / "models" / "bundled" / "model.onnx").string());
}

// Both fakes, whose streams run on their own.
struct Cards {
    InstalledFake cuda{DeviceKind::kCuda}, hip{DeviceKind::kHip};
    Cards() {
        cuda.live();
        hip.live();
    }
};

std::vector<std::vector<int32_t>> tokens_on(const importer::Graph& graph,
                                            const DeviceShape& shape) {
    const std::vector<std::vector<int32_t>> prompts{{1, 17, 23, 5, 90, 44, 38}, {1, 44}};
    planner::Plan plan = plan_for(graph, shape, all_logits_workload(2, 32, 32));
    SessionOptions options = checked_options();
    options.record_trace = false;  // which would leave out captured decode
    options.compile.gpu_compiler = "simt";
    Session session(plan, options);
    GenerateOptions generation;
    generation.max_new_tokens = 6;
    std::vector<std::vector<int32_t>> tokens;
    for (auto& sequence : generate(session, plan, prompts, generation).sequences)
        tokens.push_back(sequence.token_ids);
    return tokens;
}

}  // namespace

TEST_CASE("a model writes the host's tokens through the drivers of both vendors", "[e2e]") {
    importer::Graph graph = random_model(small_shape(), 1);
    const auto host = tokens_on(graph, kOneHost);
    for (const DeviceShape& shape :
         {DeviceShape{"one", "cuda[0]", 1, 1}, DeviceShape{"tp 2", "hip[0-1]", 2, 1},
          DeviceShape{"tp 3 of unequal cards", "cuda[0-2]", 3, 1},
          DeviceShape{"pp 2", "hip[0-1]", 1, 2},
          DeviceShape{"four logical devices of a card", "cuda[0]/0-3", 4, 1},
          DeviceShape{"all kinds", "cuda[0],hip[0],host[0]", 3, 1},
          DeviceShape{"vendors as stages", "cuda[0],hip[1]", 1, 2}}) {
        INFO(shape.name);
        const Cards cards;
        CHECK(tokens_on(graph, shape) == host);
        INFO(cards.cuda.finding() << cards.hip.finding());
        CHECK(cards.cuda.alive() + cards.hip.alive() == 0);
    }
}

TEST_CASE("the bundled model writes the host's tokens on a card of each vendor", "[e2e]") {
    importer::Graph graph = bundled_model();
    const Cards cards;
    CHECK(tokens_on(graph, {"tp 2", "cuda[0],hip[0]", 2, 1}) == tokens_on(graph, kOneHost));
    INFO(cards.cuda.finding() << cards.hip.finding());
    CHECK(cards.cuda.alive() + cards.hip.alive() == 0);
}
