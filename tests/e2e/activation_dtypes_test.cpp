// SPDX-License-Identifier: Apache-2.0
// Activations of 16 bits: whole models on GPUs that the CPU imitates and through the drivers, whose
// sums and transfers move them as they are. Logits near the reference's, as far as so many
// roundings may take them.
#include <algorithm>
#include <cmath>

#include "runtime/generate/generate.h"
#include "tests/e2e/fake_library.h"
#include "tests/e2e/support.h"
#include "tests/support/fake_gpus.h"
#include "tests/support/reference.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;
using planner::DeviceKind;

namespace {

const std::vector<int32_t> kPrompt{1, 40, 7, 99, 3, 3, 120, 64, 5, 77, 31, 8};

SequenceResult run(planner::Plan& plan, const SessionOptions& options) {
    Session session(plan, options);
    GenerateOptions generation;
    generation.max_new_tokens = 3;
    generation.keep_logits = true;
    return generate(session, plan, {kPrompt}, generation).sequences.at(0);
}
SequenceResult run(const importer::Graph& graph, const DeviceShape& shape, DType activations,
                   const SessionOptions& options) {
    planner::Workload workload = all_logits_workload(1, 32, 12);
    workload.activation_dtype = activations;
    planner::Plan plan = plan_for(graph, shape, workload);
    return run(plan, options);
}

// The largest difference of any logit, in parts of the largest.
double off_reference(const importer::Graph& graph, const SequenceResult& made) {
    std::vector<int32_t> seen = kPrompt;
    seen.insert(seen.end(), made.token_ids.begin(), made.token_ids.end() - 1);
    const std::vector<double> want = reference_logits(graph, seen);
    double largest = 0;
    for (double w : want) largest = std::max(largest, std::abs(w));
    return largest_difference(made.logits, {want.begin(), want.end()}) / largest;
}

// A layer rounds its values some eight times, a random walk of u each.
double bound_of(DType dtype, const importer::Graph& graph) {
    const double u = dtype == DType::kF16 ? 0x1p-11 : dtype == DType::kBF16 ? 0x1p-8 : 0x1p-20;
    return 4 * u * std::sqrt(8.0 * static_cast<double>(graph.config.num_layers));
}

}  // namespace

TEST_CASE("activations of 16 bits give logits within their roundings, whoever adds them", "[e2e]") {
    const importer::Graph graph = random_model(small_shape(), 5);
    const DeviceShape shapes[] = {{"one", "simt:sm_90a[0]", 1, 1},
                                  {"sums by peers, transfers", "simt:sm_90a[0-3]", 2, 2},
                                  {"AMD, unequal shares", "simt:gfx90a[0-2]", 3, 1},
                                  {"sums by the host", "simt:sm_80[0],simt:gfx1100[0]", 2, 1}};
    for (const DeviceShape& shape : shapes) {
        const double f32 = off_reference(graph, run(graph, shape, DType::kF32, checked_options()));
        CHECK(f32 < bound_of(DType::kF32, graph));
        for (DType dtype : {DType::kF16, DType::kBF16}) {
            INFO(shape.name << ", " << dtype_name(dtype));
            const double off = off_reference(graph, run(graph, shape, dtype, checked_options()));
            CHECK(off < bound_of(dtype, graph));
            CHECK(off > f32);
        }
    }
}

TEST_CASE("activations of 16 bits pass through both vendors' drivers, and NCCL", "[e2e]") {
    const importer::Graph graph = random_model(small_shape(), 5);
    for (const auto& [kind, devices] :
         {std::pair{DeviceKind::kCuda, "cuda[0-1]"}, std::pair{DeviceKind::kHip, "hip[0-1]"}}) {
        const InstalledFake fake(kind);
        INFO(devices);
        const SequenceResult made =
            run(graph, {"tp 2", devices, 2, 1}, DType::kBF16, options_for_fakes());
        CHECK(off_reference(graph, made) < bound_of(DType::kBF16, graph));
        CHECK(fake.finding() == "");
        CHECK(fake.alive() == 0);
    }
    const InstalledFake fake(DeviceKind::kCuda);
    const InstalledLibrary library(fake);
    planner::Plan apart = plan_apart(graph, "cuda[0-1]", 2, DType::kBF16);
    CHECK(off_reference(graph, run(apart, options_for_fakes())) < bound_of(DType::kBF16, graph));
    CHECK(library.calls("ncclAllReduce") > 0);
}
