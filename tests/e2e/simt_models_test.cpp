// SPDX-License-Identifier: Apache-2.0
// Whole models on GPUs that the CPU imitates, every access checked: the same tokens as the host, in shapes whose head
// ranges are equal, unequal and split over stages.
#include <filesystem>

#include "importer/import.h"
#include "models/reference.h"
#include "runtime/generate.h"
#include "tests/e2e/support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;

namespace {

const DeviceShape kHost{"host", "host[0]", 1, 1};
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

}  // namespace

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
            std::vector<double> want = models::reference_logits(graph, seen);
            CHECK(largest_difference(result.sequences[s].logits, {want.begin(), want.end()}) <
                  1e-3);
        }
    }
}

TEST_CASE("the bundled model writes the same tokens on imitated GPUs as on the host", "[e2e]") {
    importer::Graph graph = importer::import_onnx(
        (std::filesystem::path(CLEAVE_SOURCE_DIR) / "models" / "bundled" / "model.onnx").string());
    planner::Workload workload = all_logits_workload(1, 32, 32);
    const std::vector<std::vector<int32_t>> prompts{{1, 17, 230, 5, 901, 44, 380}};
    GenerateResult host = run(graph, kHost, workload, prompts, 6);
    for (const DeviceShape& shape : kSimtShapes) {
        INFO(shape.name);
        CHECK(run(graph, shape, workload, prompts, 6).sequences[0].token_ids ==
              host.sequences[0].token_ids);
    }
}
