// SPDX-License-Identifier: Apache-2.0
// What GPUs promise with CompileOptions::reproducible: within prefill and within decode, a token's
// logits do not depend on what shares its pass. Kernels of the two have orders of sums of their
// own.
#include <random>

#include "runtime/generate/batching.h"
#include "tests/e2e/support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;

namespace {

constexpr int64_t kBatch = 4, kVocab = 131;
constexpr int64_t kLengths[kBatch] = {45, 3, 16, 33};

std::vector<std::vector<int32_t>> random_prompts() {
    std::mt19937 random(9);
    std::vector<std::vector<int32_t>> prompts;
    for (int64_t length : kLengths)
        for (prompts.emplace_back(); std::ssize(prompts.back()) < length;)
            prompts.back().push_back(static_cast<int32_t>(random() % kVocab));
    return prompts;
}

// Logits of the first `rows` rows of all passes together.
std::vector<float> first_rows(Session& session, const std::vector<Batch>& passes, int64_t rows) {
    std::vector<float> all;
    for (const std::vector<float>& logits : session.run(passes))
        all.insert(all.end(), logits.begin(), logits.end());
    all.resize(static_cast<size_t>(rows * kVocab));
    return all;
}

std::vector<Batch> prefill(const std::vector<std::vector<int32_t>>& prompts, int64_t chunk) {
    std::vector<Batch> passes;
    for (PrefillPass& pass : make_prefill_passes(prompts, chunk, true))
        passes.push_back(std::move(pass.batch));
    return passes;
}

}  // namespace

TEST_CASE(
    "on imitated GPUs a token's logits do not depend on what shares its pass, within prefill and "
    "within decode",
    "[e2e]") {
    const importer::Graph graph = random_model(small_shape(), 4);
    const std::vector<std::vector<int32_t>> prompts = random_prompts();
    for (const char* device :
         {"simt:sm_80[0]", "simt:sm_90a[0]", "simt:gfx90a[0]", "simt:gfx1100[0]"})
        for (DType dtype : {DType::kF32, DType::kF16}) {
            planner::Workload workload = all_logits_workload(kBatch, 96, 64);
            workload.dtype = dtype;
            planner::Plan plan = plan_for(graph, {device, device, 1, 1}, workload);
            Session session(plan, reproducible_options());
            CAPTURE(device, dtype_name(dtype));
            const std::vector<float> alone = first_rows(session, prefill({prompts[0]}, 64), 45);
            for (int64_t chunk : {45, 33, 16, 7})
                CHECK(first_rows(session, prefill({prompts[0]}, chunk), 45) == alone);
            CHECK(first_rows(session, prefill(prompts, 64), 45) == alone);
            // All slots have their prompts now; a step is the same each time.
            std::vector<LiveSequence> live;
            for (size_t s = 0; s < prompts.size(); ++s)
                live.push_back({s, static_cast<int32_t>(5 * s), kLengths[s]});
            const auto step = [&](size_t begin, size_t end) {
                return first_rows(
                    session, {make_decode_pass(std::span(live).subspan(begin, end - begin))}, 1);
            };
            for (size_t s = 0; s < prompts.size(); ++s)
                for (size_t end = s + 2; end <= prompts.size(); ++end)
                    CHECK(step(s, end) == step(s, s + 1));
        }
}
