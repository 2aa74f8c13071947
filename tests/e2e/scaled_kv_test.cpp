// SPDX-License-Identifier: Apache-2.0
// Whole models over a KV cache of 8 bits on GPUs that the CPU imitates, where each row and scale is
// checked to be written before it is read: logits near the reference's, of prompts and of the
// tokens behind them, by each main loop of attention.
#include <algorithm>
#include <cmath>

#include "runtime/generate/generate.h"
#include "tests/e2e/support.h"
#include "tests/support/reference.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;

namespace {

std::vector<SequenceResult> run(const importer::Graph& graph, const DeviceShape& shape,
                                DType kv_dtype, const std::vector<std::vector<int32_t>>& prompts) {
    planner::Workload workload = all_logits_workload(std::ssize(prompts), 160, 96);
    workload.kv_dtype = kv_dtype;
    planner::Plan plan = plan_for(graph, shape, workload);
    Session session(plan, checked_options());
    GenerateOptions options;
    options.max_new_tokens = 4;
    options.keep_logits = true;
    return generate(session, plan, prompts, options).sequences;
}

// The largest difference of any logit, in parts of the largest.
template <class T>
double difference(const std::vector<float>& got, const std::vector<T>& want) {
    REQUIRE(got.size() == want.size());
    double largest = 0, off = 0;
    for (size_t i = 0; i < want.size(); ++i) {
        const double g = got[i], w = want[i];
        largest = std::max(largest, std::abs(w));
        REQUIRE(std::isfinite(g));
        off = std::max(off, std::abs(g - w));
    }
    return off / largest;
}

}  // namespace

TEST_CASE("logits over an 8-bit KV cache are within its bound, and alike on every main loop",
          "[e2e]") {
    const importer::Graph graph = random_model(small_shape(), 21);
    std::vector<int32_t> prompt;
    for (int32_t i = 0; i < 75; ++i) prompt.push_back(1 + i * 37 % 120);
    const std::vector<std::vector<int32_t>> prompts{prompt, {1, 40, 7, 99, 3}};
    const DeviceShape shapes[] = {{"warpgroups", "simt:sm_90a[0]", 1, 1},
                                  {"AMD, tp 2 x pp 2", "simt:gfx90a[0-3]", 2, 2},
                                  {"unequal shares", "simt:sm_80[0-2]", 3, 1},
                                  {"multiply-adds", "simt:gfx1030[0]", 1, 1}};
    // Elements of f8e4m3 have four bits of their own, and heads of 8 features average little.
    for (const auto& [dtype, bound] :
         {std::pair{DType::kInt8, 0.03}, std::pair{DType::kF8E4M3, 0.2}}) {
        std::vector<SequenceResult> first;
        for (const DeviceShape& shape : shapes) {
            INFO(shape.name << ", " << dtype_name(dtype));
            const std::vector<SequenceResult> got = run(graph, shape, dtype, prompts);
            if (first.empty()) first = got;
            for (size_t s = 0; s < prompts.size(); ++s) {
                std::vector<int32_t> seen = prompts[s];
                seen.insert(seen.end(), got[s].token_ids.begin(), got[s].token_ids.end() - 1);
                CHECK(difference(got[s].logits, reference_logits(graph, seen)) < bound);
                // What is stored differs where a feature is between two elements alone.
                CHECK(got[s].token_ids == first[s].token_ids);
                CHECK(difference(got[s].logits, first[s].logits) < 2e-3);
            }
        }
    }
}
