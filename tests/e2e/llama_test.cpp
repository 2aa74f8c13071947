// SPDX-License-Identifier: Apache-2.0
// Whole runs of small models: results do not depend on how many devices ran, and what ran is what
// was planned.
#include <algorithm>
#include <cmath>
#include <set>

#include "importer/onnx/import.h"
#include "models/llama_graph.h"
#include "models/onnx_writer.h"
#include "planner/verify/verify.h"
#include "runtime/generate/generate.h"
#include "runtime/generate/score.h"
#include "tests/e2e/support.h"
#include "tests/support/reference.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;

namespace {

const std::vector<std::vector<int32_t>> kPrompts{
    {1, 40, 7, 99, 3, 3, 120, 64, 5, 77, 31}, {1, 8, 130}, {90, 2, 50, 51, 52, 4}};

std::vector<float> reference_of(const importer::Graph& graph, const std::vector<int32_t>& tokens) {
    std::vector<double> logits = test::reference_logits(graph, tokens);
    return {logits.begin(), logits.end()};
}

GenerateOptions with_logits(int64_t max_new_tokens) {
    GenerateOptions options;
    options.max_new_tokens = max_new_tokens;
    options.keep_logits = true;
    return options;
}

// Every token of the sequence but the last: those the model has seen.
std::vector<int32_t> seen_tokens(std::vector<int32_t> prompt, const SequenceResult& result) {
    prompt.insert(prompt.end(), result.token_ids.begin(), result.token_ids.end());
    prompt.pop_back();
    return prompt;
}

// Token keys that attention reads in a pass, as Amount counts them.
int64_t keys_of(const Batch& batch) {
    int64_t keys = 0;
    for (int32_t position : batch.positions) keys += position + 1;
    return keys;
}

Batch one_pass(const std::vector<int32_t>& tokens) {
    Batch batch;
    batch.token_ids = tokens;
    for (size_t i = 0; i < tokens.size(); ++i) {
        batch.positions.push_back(static_cast<int32_t>(i));
        batch.slots.push_back(0);
        batch.output_rows.push_back(static_cast<int32_t>(i));
    }
    batch.sequence_starts = {0, static_cast<int32_t>(tokens.size())};
    return batch;
}

}  // namespace

TEST_CASE(
    "logits equal the reference on any devices, for chunked prefill and decode of a ragged batch",
    "[e2e]") {
    importer::Graph graph = random_model(small_shape(), 1);
    for (const DeviceShape& shape : device_shapes()) {
        INFO(shape.name);
        planner::Plan plan = plan_for(graph, shape, all_logits_workload(3, 32, 7));
        Session session(plan, checked_options());
        GenerateResult result = generate(session, plan, kPrompts, with_logits(6));
        for (size_t s = 0; s < kPrompts.size(); ++s) {
            std::vector<int32_t> tokens = seen_tokens(kPrompts[s], result.sequences[s]);
            CHECK(largest_difference(result.sequences[s].logits, reference_of(graph, tokens)) <
                  1e-3);
        }
    }
}

TEST_CASE(
    "norms over all heads together give the same logits on any devices, and the plan says why",
    "[e2e]") {
    TemporaryFolder folder;
    models::Shape normed = small_shape();
    normed.variation.joint_qk_norm = true;
    const importer::Graph graph =
        importer::import_onnx(models::write_onnx_llama(normed, folder.path().string(), {}));
    for (size_t i : {0, 1, 4}) {  // one device, tp 2, tp 3
        const DeviceShape& shape = device_shapes()[i];
        INFO(shape.name);
        planner::Plan plan = plan_for(graph, shape, all_logits_workload(3, 32, 7));
        const bool said = plan.why.binding.find("normalised over all heads") != std::string::npos;
        CHECK(said == (shape.tensor_parallel > 1));
        Session session(plan, checked_options());
        GenerateResult result = generate(session, plan, kPrompts, with_logits(3));
        for (size_t s = 0; s < kPrompts.size(); ++s) {
            std::vector<int32_t> tokens = seen_tokens(kPrompts[s], result.sequences[s]);
            CHECK(largest_difference(result.sequences[s].logits, reference_of(graph, tokens)) <
                  1e-3);
        }
    }
}

TEST_CASE("every device of a forced shape runs steps that carry weights", "[e2e]") {
    importer::Graph graph = random_model(small_shape(), 2);
    for (const DeviceShape& shape : device_shapes()) {
        INFO(shape.name);
        planner::Plan plan = plan_for(graph, shape, all_logits_workload(1, 32, 16));
        Session session(plan, checked_options());
        generate(session, plan, {kPrompts[0]}, with_logits(2));
        std::set<planner::DeviceId> worked[2];
        for (const TraceEvent& event : session.trace().events) {
            const planner::Compute* compute =
                plan.phase(event.is_prefill).steps[event.step.index()].compute();
            if (compute && !compute->weights.empty())
                worked[event.is_prefill ? 0 : 1].insert(event.device);
        }
        CHECK(worked[0].size() == plan.machine.devices.size());
        CHECK(worked[1].size() == plan.machine.devices.size());
    }
}

TEST_CASE("the bytes that crossed devices are those of the plan, step by step", "[e2e]") {
    importer::Graph graph = random_model(small_shape(), 3);
    for (const DeviceShape& shape : device_shapes()) {
        INFO(shape.name);
        planner::Plan plan = plan_for(graph, shape, all_logits_workload(1, 32, 16));
        Session session(plan, checked_options());
        std::vector<Batch> passes{one_pass(kPrompts[0])};
        passes.push_back(passes[0]);
        passes[1].is_prefill = false;
        passes[1].token_ids = {5};
        passes[1].positions = {11};
        passes[1].slots = {0};
        passes[1].output_rows = {0};
        passes[1].sequence_starts = {0, 1};
        session.run(passes);
        int64_t total = 0;
        for (int pass = 0; pass < 2; ++pass) {
            const Batch& batch = passes[static_cast<size_t>(pass)];
            const planner::Phase& phase = plan.phase(batch.is_prefill);
            std::vector<int64_t> bytes(phase.steps.size(), 0);
            std::vector<int> events(phase.steps.size(), 0);
            for (const TraceEvent& event : session.trace().events) {
                if (event.pass != pass) continue;
                bytes[event.step.index()] += event.bytes;
                ++events[event.step.index()];
            }
            for (size_t i = 0; i < phase.steps.size(); ++i) {
                INFO("step " << i << (batch.is_prefill ? " of prefill" : " of decode"));
                CHECK(events[i] > 0);
                CHECK(bytes[i] == phase.steps[i].link_bytes.at(
                                      {batch.num_tokens(), batch.num_outputs(), keys_of(batch)}));
                total += bytes[i];
            }
        }
        CHECK(session.transferred_bytes() == total);
    }
}

TEST_CASE("devices allocate exactly what the plan counts", "[e2e]") {
    importer::Graph graph = random_model(small_shape(), 4);
    for (const DeviceShape& shape : device_shapes()) {
        planner::Plan plan = plan_for(graph, shape, all_logits_workload(2, 32, 16));
        Session session(plan, checked_options());
        auto peaks = session.peak_memory_bytes();
        for (const planner::DeviceMemory& memory : plan.memory) {
            CHECK(peaks[plan.machine.device(memory.device).name] ==
                  memory.needed() - memory.reserved);
        }
    }
}

TEST_CASE("a plan without one of its transfers is refused by the verifier and fails without it",
          "[e2e]") {
    importer::Graph graph = random_model(small_shape(), 5);
    planner::Plan plan = plan_for(graph, device_shapes()[2], all_logits_workload(1, 32, 16));
    auto& steps = plan.decode.steps;
    auto transfer = std::find_if(steps.begin(), steps.end(),
                                 [](const planner::Step& s) { return s.transfer(); });
    REQUIRE(transfer != steps.end());
    steps.erase(transfer);
    CHECK_THROWS_AS(verify_plan(plan), UserError);
    std::string message = user_error([&] { Session session(plan, checked_options()); });
    CHECK(message.find("host[1]") != std::string::npos);
    CHECK(message.find("decode step") != std::string::npos);
}

TEST_CASE("sampled tokens do not depend on devices, batching or chunks", "[e2e]") {
    importer::Graph graph = random_model(small_shape(), 6);
    GenerateOptions options;
    options.max_new_tokens = 12;
    options.sampling = {0.8f, 0.9f, 1234};
    std::vector<std::vector<int32_t>> expected;
    for (const DeviceShape& shape : device_shapes()) {
        for (int64_t chunk : {3, 64}) {
            planner::Workload workload = all_logits_workload(3, 32, chunk);
            planner::Plan plan = plan_for(graph, shape, workload);
            Session session(plan, checked_options());
            GenerateResult result = generate(session, plan, kPrompts, options);
            std::vector<std::vector<int32_t>> tokens;
            for (const SequenceResult& sequence : result.sequences)
                tokens.push_back(sequence.token_ids);
            if (expected.empty()) expected = tokens;
            INFO(shape.name << ", chunks of " << chunk);
            CHECK(tokens == expected);
        }
    }
}

TEST_CASE("a sequence ends at its stop token, when its caller says so, or at its length", "[e2e]") {
    importer::Graph graph = random_model(small_shape(), 7);
    planner::Plan plan = plan_for(graph, device_shapes()[0], all_logits_workload(3, 32, 16));
    Session session(plan, checked_options());
    GenerateOptions options;
    options.max_new_tokens = 8;
    auto free = generate(session, plan, kPrompts, options);
    for (const SequenceResult& sequence : free.sequences) CHECK(sequence.token_ids.size() == 8);
    options.stop_ids = {free.sequences[0].token_ids[3]};
    size_t streamed = 0;
    options.on_token = [&](size_t sequence, int32_t) {
        ++streamed;
        return sequence != 1;
    };
    auto stopped = generate(session, plan, kPrompts, options);
    CHECK(stopped.sequences[0].token_ids.back() == options.stop_ids[0]);
    CHECK(stopped.sequences[0].token_ids.size() <= 4);
    CHECK(stopped.sequences[1].token_ids.size() == 1);
    size_t total = 0;
    for (const SequenceResult& sequence : stopped.sequences) {
        total += sequence.token_ids.size();
    }
    CHECK(streamed == total);
}

TEST_CASE("a text's score is the mean likelihood that the reference gives its tokens", "[e2e]") {
    importer::Graph graph = random_model(small_shape(), 8);
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 30; ++i) tokens.push_back((i * 37 + 11) % 131);
    std::vector<double> logits = test::reference_logits(graph, tokens);
    double expected = 0;
    for (size_t t = 0; t + 1 < tokens.size(); ++t) {
        double sum = 0;
        for (size_t v = 0; v < 131; ++v) sum += std::exp(logits[t * 131 + v]);
        expected += std::log(sum) - logits[t * 131 + static_cast<size_t>(tokens[t + 1])];
    }
    planner::Plan plan = plan_for(graph, device_shapes()[1], all_logits_workload(1, 32, 8));
    Session session(plan, checked_options());
    ScoreResult result = score(session, plan, tokens);
    CHECK(result.tokens == 29);
    CHECK(result.nll == Approx(expected / 29).epsilon(1e-4));
    CHECK(result.perplexity == Approx(std::exp(expected / 29)).epsilon(1e-3));
    // Longer than the context: every token is still scored once.
    std::vector<int32_t> twice = tokens;
    twice.insert(twice.end(), tokens.begin(), tokens.end());
    CHECK(score(session, plan, twice).tokens == 59);
}

TEST_CASE("what a run cannot take is refused with the numbers", "[e2e]") {
    importer::Graph graph = random_model(small_shape(), 9);
    planner::Plan plan = plan_for(graph, device_shapes()[0], all_logits_workload(1, 16, 8));
    Session session(plan, checked_options());
    auto refused = [&](std::vector<std::vector<int32_t>> prompts, int64_t count) {
        GenerateOptions options;
        options.max_new_tokens = count;
        return user_error([&] { generate(session, plan, prompts, options); });
    };
    CHECK(refused({{}}, 1).find("empty") != std::string::npos);
    CHECK(refused({{1, 2}}, 15).find("context of 16") != std::string::npos);
    CHECK(refused({{1}, {2}}, 1).find("batch of 1") != std::string::npos);
    CHECK(refused({{131}}, 1).find("131") != std::string::npos);
    CHECK(refused({{-1}}, 1).find("-1") != std::string::npos);
}

TEST_CASE("a model without weights can be planned but not run", "[e2e]") {
    importer::Graph graph = models::build_llama_graph(small_shape(), DType::kF32);
    planner::Plan plan = plan_for(graph, device_shapes()[0], all_logits_workload(1, 16, 8));
    CHECK(user_error([&] { Session session(plan, {}); }).find("has no data") != std::string::npos);
}

TEST_CASE("devices that this build cannot drive are refused by name", "[e2e]") {
    importer::Graph graph = random_model(small_shape(), 10);
    planner::Plan plan =
        plan_for(graph, {"simulated", "sim:h100", 1, 1}, all_logits_workload(1, 16, 8));
    CHECK(user_error([&] { Session session(plan, {}); }).find("sim:h100[0]") != std::string::npos);
}

TEST_CASE("narrow weights and caches give logits within their type's bound", "[e2e]") {
    importer::Graph graph = random_model(small_shape(), 11);
    std::vector<float> reference = reference_of(graph, kPrompts[0]);
    float largest = 0;
    for (float logit : reference) largest = std::max(largest, std::abs(logit));
    struct Case {
        DType dtype;
        double bound;
    };
    for (Case c : {Case{DType::kF16, 1e-2}, Case{DType::kBF16, 8e-2}}) {
        for (size_t shape : {size_t{0}, size_t{4}}) {
            planner::Workload workload = all_logits_workload(1, 32, 16);
            workload.dtype = c.dtype;
            workload.kv_dtype = c.dtype;
            planner::Plan plan = plan_for(graph, device_shapes()[shape], workload);
            Session session(plan, checked_options());
            GenerateResult result = generate(session, plan, {kPrompts[0]}, with_logits(1));
            INFO(dtype_name(c.dtype) << " on " << device_shapes()[shape].name);
            CHECK(largest_difference(result.sequences[0].logits, reference) < c.bound * largest);
        }
    }
}
