// SPDX-License-Identifier: Apache-2.0
// Whole models on GPUs that the CPU imitates, every access checked: the reference's logits in
// shapes whose head ranges are equal, unequal and split over stages. Trained models there:
// exported_models_test.cpp and tests/tools.
#include <set>

#include "codegen/generate.h"
#include "planner/verify/verify.h"
#include "runtime/cards/open_devices.h"
#include "runtime/execute/executor.h"
#include "runtime/generate/generate.h"
#include "runtime/load/upload.h"
#include "tests/e2e/support.h"
#include "tests/support/fake_gpus.h"
#include "tests/support/plan_forms.h"
#include "tests/support/reference.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;

namespace {

const DeviceShape kSimtShapes[] = {{"AMD, tp 8", "simt:gfx90a[0-7]", 8, 1},
                                   {"AMD, tp 4 x pp 2", "simt:gfx90a[0-7]", 4, 2},
                                   {"NVIDIA, tp 3", "simt:sm_90a[0-2]", 3, 1},
                                   {"one of wave32", "simt:gfx1100[0]", 1, 1}};

GenerateResult run(const importer::Graph& graph, const DeviceShape& shape,
                   const planner::Workload& workload,
                   const std::vector<std::vector<int32_t>>& prompts, int64_t new_tokens) {
    planner::Plan plan = plan_for(graph, shape, workload);
    Session session(plan, checked_options());
    GenerateOptions options;
    options.max_new_tokens = new_tokens;
    options.keep_logits = true;
    return generate(session, plan, prompts, options);
}

void scale_weights(importer::Graph& graph, const std::string& part, float by) {
    int scaled = 0;
    for (const importer::Weight& weight : graph.weights) {
        if (weight.name.find(part) == std::string::npos) continue;
        auto& blob = graph.blobs[weight.data.blob.index()];
        auto* values = reinterpret_cast<float*>(blob.data());
        for (size_t i = 0; i < blob.size() / sizeof(float); ++i) values[i] *= by;
        ++scaled;
    }
    REQUIRE(scaled > 0);
}

// The same plan with every exchange through the host: slices have room for the payloads of the
// staged path.
void stage_exchanges(planner::Plan& plan) {
    using namespace planner;
    for (Phase* phase : {&plan.prefill, &plan.decode})
        for (Step& step : phase->steps) {
            if (auto* c = std::get_if<Collective>(&step.action)) c->path = Path::kStaged;
            if (auto* t = std::get_if<Transfer>(&step.action)) t->path = Path::kStaged;
        }
    for (Buffer& buffer : plan.buffers)
        if (buffer.role == BufferRole::kPeerPayloads) buffer.role = BufferRole::kExchange;
}

// The plan for links so fast that a sum of few tokens is one exchange on any number of devices,
// which takes norms along.
planner::Plan plan_on_fast_links(const importer::Graph& graph, const DeviceShape& shape,
                                 const planner::Workload& workload) {
    planner::Machine machine = plan_for(graph, shape, workload).machine;
    for (planner::Link& link : machine.links) {
        link.bandwidth = 1'000'000'000'000;
        link.latency_ns = 1000;
        link.exchange_bandwidth = link.exchange_latency_ns = 0;
    }
    planner::PlanOptions options;
    options.tensor_parallel = shape.tensor_parallel;
    options.pipeline_stages = shape.pipeline_stages;
    return make_plan(graph, machine, workload, options);
}

struct Outcome {
    std::vector<std::vector<float>> logits;
    std::set<planner::Path> paths;
    int64_t received = 0;
};
Outcome outcome_of(planner::Plan plan, const std::vector<std::vector<int32_t>>& prompts,
                   const std::string& compiler = "") {
    SessionOptions checked = checked_options();
    checked.compile.gpu_compiler = compiler;
    Session session(plan, checked);
    GenerateOptions options;
    options.max_new_tokens = 4;
    options.keep_logits = true;
    Outcome outcome;
    for (auto& sequence : generate(session, plan, prompts, options).sequences)
        outcome.logits.push_back(sequence.logits);
    for (const TraceEvent& event : session.trace().events)
        if (event.path) outcome.paths.insert(*event.path);
    outcome.received = session.transferred_bytes();
    return outcome;
}

}  // namespace

TEST_CASE(
    "exchanges by peer memory and through the host give the same bits, and the trace says which",
    "[e2e]") {
    using planner::Path;
    const std::vector<std::vector<int32_t>> prompts{{1, 40, 7, 99, 3, 3, 120}, {1, 8}};
    importer::Graph graph = random_model(small_shape(), 1);
    for (const DeviceShape& shape : {kSimtShapes[1], kSimtShapes[2]}) {
        INFO(shape.name);
        planner::Plan plan = plan_on_fast_links(graph, shape, all_logits_workload(2, 32, 12));
        CHECK(count_norms(plan.decode) == 4 - shape.pipeline_stages);
        const Outcome with_norms = outcome_of(plan, prompts);
        norms_in_readers(plan);
        CHECK(planner::find_violations(plan).empty());
        const Outcome peers = outcome_of(plan, prompts);
        CHECK(peers.received == with_norms.received);
        for (size_t s = 0; s < prompts.size(); ++s)
            CHECK(largest_difference(peers.logits[s], with_norms.logits[s]) < 1e-4);
        stage_exchanges(plan);
        CHECK(planner::find_violations(plan).empty());
        const Outcome staged = outcome_of(plan, prompts);
        CHECK(peers.logits == staged.logits);
        CHECK(peers.received == staged.received);
        CHECK(peers.paths == std::set{Path::kPeer});
        CHECK(staged.paths == std::set{Path::kStaged});
    }
    // Across vendors, and with the host among them, the staged sum is the one that works.
    importer::Graph mixed = random_model(small_shape(), 1);
    const DeviceShape vendors{"vendors", "simt:sm_90a[0],simt:gfx90a[0],host[0]", 3, 1};
    planner::Plan plan = plan_for(mixed, vendors, all_logits_workload(2, 32, 12));
    const Outcome sum = outcome_of(plan, prompts);
    CHECK(sum.paths == std::set{Path::kStaged});
    std::vector<double> want = test::reference_logits(mixed, prompts[1]);
    const std::vector<float> first(sum.logits[1].begin(), sum.logits[1].begin() + std::ssize(want));
    CHECK(largest_difference(first, {want.begin(), want.end()}) < 1e-3);
}

TEST_CASE("a device that never reaches an exchange by peer memory is named with the step",
          "[e2e]") {
    importer::Graph graph = random_model(small_shape(), 1);
    planner::Plan plan =
        plan_for(graph, {"pair", "simt:sm_90a[0-1]", 2, 1}, all_logits_workload(1, 32, 12));
    std::vector<codegen::Program> programs;
    for (size_t d = 0; d < 2; ++d)
        programs.push_back(codegen::generate_program(plan, planner::DeviceId(d)));
    // From its third exchange on the second device takes part in none.
    int exchanges = 0;
    for (codegen::Instruction& i : programs[1].prefill)
        if (!plan.prefill.steps[i.step.index()].compute() && ++exchanges >= 3) {
            programs[1].kernels.push_back(programs[1].kernels[static_cast<size_t>(i.kernel)]);
            programs[1].kernels.back().launch.grid[0] = codegen::Extent{};
            i.kernel = static_cast<int>(programs[1].kernels.size()) - 1;
        }
    SessionOptions checked = checked_options();
    Drivers drivers;
    std::vector<std::unique_ptr<Device>> devices =
        open_devices(plan, drivers, {checked.threads, true});
    const auto compiled = codegen::compile(programs, checked.compile);
    Arenas arenas(plan, devices);
    upload_weights(plan, arenas, devices, {});
    for (size_t d = 0; d < 2; ++d) devices[d]->load(compiled[d].objects);
    Executor executor(plan, programs, devices, arenas, {.watchdog_seconds = 1});
    const Batch batch{{1, 2, 3}, {0, 1, 2}, {0, 0, 0}, {0, 3}, {2}, true};
    try {
        executor.run({&batch, 1}, PassResults::kLogits);
        FAIL("no error");
    } catch (const DeviceError& error) {
        CHECK_THAT(error.what(),
                   Catch::Matchers::Contains("simt:sm_90a[1] never reached this step") &&
                       Catch::Matchers::Contains("all_reduce"));
    }
}

TEST_CASE("a tile that shrank as its kernel was compiled is the plan's, and is what the trace ran",
          "[e2e]") {
    constexpr int64_t kMostThreads = 256;
    importer::Graph graph = random_model(small_shape(), 1);
    planner::Plan plan =
        plan_for(graph, {"one", "simt:gfx1100[0]", 1, 1}, all_logits_workload(1, 32, 12));
    // Attention of a token asks for twice the threads that a block may have.
    plan.machine.devices[0].limits.max_threads_per_block = kMostThreads;
    std::vector<planner::Compute*> attentions;
    for (planner::Step& step : plan.decode.steps)
        if (auto* c = std::get_if<planner::Compute>(&step.action);
            c && c->kernel == planner::KernelKind::kAttention) {
            c->tile.threads = 2 * kMostThreads;
            c->tile.shared_bytes = plan.machine.devices[0].limits.shared_memory_per_block;
            attentions.push_back(c);
        }
    REQUIRE(attentions.size() == 2);
    CHECK_FALSE(planner::find_violations(plan).empty());
    Session session(plan, checked_options());
    for (const planner::Compute* c : attentions) CHECK(c->tile.threads == kMostThreads);
    CHECK(planner::find_violations(plan).empty());
    const codegen::Program program = codegen::generate_program(plan, planner::DeviceId(0));
    codegen::check_tiles(plan, program);

    GenerateOptions options;
    options.max_new_tokens = 3;
    options.keep_logits = true;
    std::vector<int32_t> seen{1, 40, 7, 99, 3};
    const SequenceResult result = generate(session, plan, {seen}, options).sequences[0];
    seen.insert(seen.end(), result.token_ids.begin(), result.token_ids.end() - 1);
    const std::vector<double> want = test::reference_logits(graph, seen);
    CHECK(largest_difference(result.logits, {want.begin(), want.end()}) < 1e-3);
    int ran = 0;
    for (const TraceEvent& event : session.trace().events) {
        if (event.is_prefill) continue;
        const planner::Compute* c = plan.decode.steps[event.step.index()].compute();
        ran += c && c->kernel == planner::KernelKind::kAttention && c->tile.threads == kMostThreads;
    }
    CHECK(ran == 2 * 2);  // two layers, two tokens behind the prompt
}

TEST_CASE("a ragged batch in chunks gives the reference's logits on every imitated GPU", "[e2e]") {
    const std::vector<std::vector<int32_t>> prompts{
        {1, 40, 7, 99, 3, 3, 120, 64, 5, 77, 31}, {1, 8, 130}, {90, 2, 50, 51, 52, 4}};
    importer::Graph graph = random_model(small_shape(), 1);
    for (const DeviceShape& shape : kSimtShapes) {
        INFO(shape.name);
        // Chunks of 12 take the kernels of many tokens, decode those of few.
        GenerateResult result = run(graph, shape, all_logits_workload(3, 32, 12), prompts, 3);
        for (size_t s = 0; s < prompts.size(); ++s) {
            std::vector<int32_t> seen = prompts[s];
            const std::vector<int32_t>& made = result.sequences[s].token_ids;
            seen.insert(seen.end(), made.begin(), made.end() - 1);
            std::vector<double> want = test::reference_logits(graph, seen);
            CHECK(largest_difference(result.sequences[s].logits, {want.begin(), want.end()}) <
                  1e-3);
        }
    }
}

TEST_CASE("a prompt's prepared activations give the logits that products with their own norms give",
          "[e2e]") {
    models::Shape model = small_shape();
    model.config.hidden_size = 512;
    model.config.intermediate_size = 264;
    model.config.num_layers = 1;
    model.config.num_heads = 4;
    model.config.num_kv_heads = 2;
    model.config.head_dim = 64;
    importer::Graph graph = random_model(model, 3);
    // Beyond f16 between the products of the MLP.
    scale_weights(graph, "up_proj", 1e5f);
    scale_weights(graph, "down_proj", 1e-2f);
    std::vector<std::vector<int32_t>> prompts{{}, {1, 8, 130}};
    for (int32_t i = 0; i < 70; ++i) prompts[0].push_back(i * 37 % 131);
    planner::Workload workload = all_logits_workload(2, 128, 80);
    workload.dtype = DType::kF16;
    const std::vector<double> want = test::reference_logits(graph, prompts[0]);
    const cleave::test::InstalledFake fake(planner::DeviceKind::kCuda);
    fake.live();
    for (const char* device : {"simt:sm_80[0]", "simt:sm_90a[0]", "cuda[0]"}) {
        INFO(device);
        const std::string compiler = device == std::string("cuda[0]") ? "simt" : "";
        planner::Plan plan = plan_for(graph, {device, device, 1, 1}, workload);
        const Outcome apart = outcome_of(plan, prompts, compiler);
        // Both products of attention, and both of the MLP.
        int prepared = 0;
        for (planner::Step& step : plan.prefill.steps) {
            auto* c = std::get_if<planner::Compute>(&step.action);
            if (!c || c->activations != planner::ActivationPath::kPrepared) continue;
            c->activations = planner::ActivationPath::kConverted;
            c->tile.stages = 2;
            ++prepared;
        }
        CHECK(prepared == 4);
        const Outcome together = outcome_of(plan, prompts, compiler);
        for (size_t s = 0; s < prompts.size(); ++s)
            CHECK(largest_difference(apart.logits[s], together.logits[s]) < 0.02);
        const std::vector<float> first(apart.logits[0].begin(),
                                       apart.logits[0].begin() + std::ssize(want));
        CHECK(largest_difference(first, {want.begin(), want.end()}) < 0.05);
    }
}
