// SPDX-License-Identifier: Apache-2.0
// Products that round their activations: whatever devices share them, each sum is made whole on
// one, so that every bit is that of one device.
#include <numeric>

#include "runtime/generate/generate.h"
#include "tests/e2e/support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;

namespace {

std::vector<int32_t> prompt_of(int64_t length) {
    std::vector<int32_t> tokens(static_cast<size_t>(length));
    for (size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = static_cast<int32_t>((7 + 31 * i + 5 * i * i) %
                                         static_cast<size_t>(small_shape().config.vocab_size));
    return tokens;
}

// Logits of all tokens of two prompts, read and continued together.
std::vector<float> logits_of(const importer::Graph& graph, const DeviceShape& shape, DType dtype) {
    planner::Workload workload = all_logits_workload(2, 96, 64);
    workload.dtype = dtype;
    workload.compute.reset();
    planner::Plan plan = plan_for(graph, shape, workload);
    REQUIRE(plan.workload.compute == planner::ComputeMode::kFast);
    Session session(plan, checked_options());
    GenerateOptions options;
    options.max_new_tokens = 8;
    options.keep_logits = true;
    std::vector<float> all;
    for (const SequenceResult& sequence :
         generate(session, plan, {prompt_of(61), prompt_of(5)}, options).sequences)
        all.insert(all.end(), sequence.logits.begin(), sequence.logits.end());
    return all;
}

}  // namespace

TEST_CASE("products on rounded activations have the bits of one device on any number of them",
          "[e2e]") {
    const importer::Graph graph = random_model(small_shape(), 5);
    for (const DType dtype : {DType::kBF16, DType::kInt4}) {
        const std::vector<float> alone = logits_of(graph, {"one", "host", 1, 1}, dtype);
        REQUIRE(alone.size() > 0);
        for (const DeviceShape& shape : device_shapes()) {
            INFO(dtype_name(dtype) << " on " << shape.name);
            CHECK(logits_of(graph, shape, dtype) == alone);
        }
    }
}
