// SPDX-License-Identifier: Apache-2.0
// Whole models through the CUDA and HIP drivers, on fakes of the vendors' libraries whose cards the
// CPU imitates: kernels compiled from the same source, every access checked. The same tokens as the
// host.
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "importer/onnx/import.h"
#include "runtime/generate/generate.h"
#include "tests/e2e/fake_library.h"
#include "tests/e2e/support.h"
#include "tests/support/fake_gpus.h"
#include "tests/support/plan_forms.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;
using planner::DeviceKind;

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

// Without a trace decode is captured.
std::vector<std::vector<int32_t>> tokens_of(planner::Plan& plan, bool trace = false) {
    const std::vector<std::vector<int32_t>> prompts{{1, 17, 23, 5, 90, 44, 38}, {1, 44}};
    SessionOptions options = checked_options();
    options.record_trace = trace;
    options.compile.gpu_compiler = "simt";
    Session session(plan, options);
    GenerateOptions generation;
    generation.max_new_tokens = 6;
    std::vector<std::vector<int32_t>> tokens;
    for (auto& sequence : generate(session, plan, prompts, generation).sequences)
        tokens.push_back(sequence.token_ids);
    for (const TraceEvent& event : session.trace().events) {
        const planner::Step& step = plan.phase(event.is_prefill).steps[event.step.index()];
        if (const planner::Collective* c = step.collective()) CHECK(event.path == c->path);
    }
    // The trace names the steps at which graphs of captured decode end.
    if (trace && plan.machine.devices[0].kind == DeviceKind::kCuda)
        CHECK_THAT(trace_to_perfetto(session.trace(), plan),
                   Catch::Matchers::Contains("\"transport\":\"vendor\",\"captured\":false"));
    return tokens;
}

std::vector<std::vector<int32_t>> tokens_on(const importer::Graph& graph,
                                            const DeviceShape& shape) {
    planner::Plan plan = plan_for(graph, shape, all_logits_workload(2, 32, 32));
    return tokens_of(plan);
}

size_t sums_by_library(const planner::Plan& plan) {
    size_t count = 0;
    for (bool is_prefill : {true, false})
        for (const planner::Step& step : plan.phase(is_prefill).steps)
            count += step.collective() && step.collective()->path == planner::Path::kVendor;
    return count;
}

}  // namespace

TEST_CASE("a model writes the host's tokens through the drivers of both vendors", "[e2e]") {
    importer::Graph graph = random_model(small_shape(), 1);
    const auto host = tokens_on(graph, kOneHost);
    // Norms that ride on sums by peer memory in one exchange: three of two layers. Three cards sum
    // in two phases.
    const std::pair<DeviceShape, int> shapes[] = {
        {{"one", "cuda[0]", 1, 1}, 0},
        {{"tp 2", "hip[0-1]", 2, 1}, 3},
        {{"tp 3 of unequal cards", "cuda[0-2]", 3, 1}, 0},
        {{"pp 2", "hip[0-1]", 1, 2}, 0},
        {{"four logical devices of a card", "cuda[0]/0-3", 4, 1}, 3},
        {{"all kinds", "cuda[0],hip[0],host[0]", 3, 1}, 0},
        {{"vendors as stages", "cuda[0],hip[1]", 1, 2}, 0}};
    for (const auto& [shape, norms] : shapes) {
        INFO(shape.name);
        const Cards cards;
        planner::Plan plan = plan_for(graph, shape, all_logits_workload(2, 32, 32));
        CHECK(count_norms(plan.decode) == norms);
        CHECK(tokens_of(plan) == host);
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

TEST_CASE("GPUs take the first of equal logits and refuse a NaN, as the host does", "[e2e]") {
    const Cards cards;
    for (const char* device : {"host[0]", "simt:sm_80[0]", "cuda[0]"}) {
        INFO(device);
        const DeviceShape shape{device, device, 1, 1};
        importer::Graph graph = random_model(small_shape(), 1);
        const auto lm_head = std::find_if(graph.weights.begin(), graph.weights.end(), [](auto& w) {
            return w.name.find("lm_head") != std::string::npos;
        });
        REQUIRE(lm_head != graph.weights.end());
        auto& bytes = graph.blobs[lm_head->data.blob.index()];
        std::fill(bytes.begin(), bytes.end(), std::byte{0});
        CHECK(tokens_on(graph, shape) == std::vector(2, std::vector<int32_t>(6, 0)));
        // All bits set: a NaN, in the last token's row.
        std::fill(bytes.end() - 4, bytes.end(), std::byte{0xff});
        CHECK_THAT(user_error([&] { tokens_on(graph, shape); }),
                   Catch::Matchers::Contains("logits at position") &&
                       Catch::Matchers::Contains("are not numbers") &&
                       Catch::Matchers::Contains(device));
    }
    CHECK(cards.cuda.alive() == 0);
}

TEST_CASE(
    "cards that do not reach each other sum and gather by the vendor's library, on their streams",
    "[e2e]") {
    importer::Graph graph = random_model(small_shape(), 1);
    const auto host = tokens_on(graph, kOneHost);
    for (int tp : {2, 3}) {
        INFO(tp);
        const Cards cards;
        const InstalledLibrary library(cards.cuda);
        planner::Plan plan = plan_apart(graph, fmt::format("cuda[0-{}]", tp - 1), tp);
        CHECK(plan.machine.devices[0].collectives == "NCCL 2.28.9");
        CHECK(sums_by_library(plan) > 0);
        CHECK(tokens_of(plan, tp == 3) == host);
        INFO(cards.cuda.finding());
        CHECK((cards.cuda.calls("cuGraphLaunch") > 0) == (tp == 2));  // between the sums
        CHECK(library.calls("ncclAllReduce") > 0);
        // Logits of all rows of a prompt come in blocks, which a copy of the card puts side by
        // side.
        CHECK(library.calls("ncclRecv") > 0);
        CHECK(library.calls("ncclSend") == library.calls("ncclRecv"));
        CHECK(cards.cuda.calls("bytes within") > 0);
        CHECK(cards.cuda.calls("pageable copy") == 0);
        CHECK(library.calls("ncclCommInitRankConfig") == tp);  // one communicator for both
        CHECK(library.calls("ncclCommDestroy") == tp);
        CHECK(library.calls("ncclCommAbort") == 0);
        CHECK(cards.cuda.alive() == 0);
    }
    // Logical devices of one card, which the library refuses, and cards without it have another
    // way.
    const Cards cards;
    CHECK(sums_by_library(plan_apart(graph, "cuda[0-1]", 2)) == 0);
    const InstalledLibrary library(cards.cuda);
    CHECK(sums_by_library(plan_apart(graph, "cuda[0]/0-1", 2)) == 0);
}

TEST_CASE("a vendor's library that fails, refuses or is gone ends the run with its name", "[e2e]") {
    importer::Graph graph = random_model(small_shape(), 1);
    const Cards cards;
    std::optional<InstalledLibrary> library(std::in_place, cards.cuda);
    planner::Plan plan = plan_apart(graph, "cuda[0-1]", 2);
    REQUIRE(sums_by_library(plan) > 0);
    library->fail("ncclAllReduce", 5);
    CHECK_THROWS_WITH(tokens_of(plan), Catch::Matchers::Contains("ncclAllReduce failed on cuda["));
    CHECK(library->calls("ncclCommAbort") == 2);
    library->fail("ncclSend", 2);
    CHECK_THROWS_WITH(tokens_of(plan), Catch::Matchers::Contains("ncclSend failed on cuda["));
    CHECK(library->calls("ncclCommAbort") == 4);
    planner::Plan one_card = plan;
    one_card.machine.devices[1].identity = one_card.machine.devices[0].identity;
    one_card.machine.devices[1].index = one_card.machine.devices[0].index;
    CHECK_THAT(user_error([&] { tokens_of(one_card); }),
               Catch::Matchers::Contains("are on one card"));
    library.reset();
    CHECK_THAT(user_error([&] { tokens_of(plan); }),
               Catch::Matchers::Contains("made with NCCL 2.28.9") &&
                   Catch::Matchers::Contains("libno-collectives.so"));
    CHECK(cards.cuda.alive() == 0);
}
