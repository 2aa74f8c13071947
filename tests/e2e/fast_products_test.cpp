// SPDX-License-Identifier: Apache-2.0
// Products that round their activations: whatever devices share them, each sum is made whole on
// one, so that every bit is that of one device.
#include <algorithm>
#include <bit>

#include "importer/weights/quantize.h"
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
std::vector<float> logits_of(const importer::Graph& graph, const DeviceShape& shape,
                             std::optional<DType> dtype) {
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

// The first of two rows of numbers that has other bits; -1 where none has.
int64_t first_difference(const std::vector<float>& a, const std::vector<float>& b) {
    if (a.size() != b.size()) return static_cast<int64_t>(std::min(a.size(), b.size()));
    for (size_t i = 0; i < a.size(); ++i)
        if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]))
            return static_cast<int64_t>(i);
    return -1;
}

void check_bits(const importer::Graph& graph, std::optional<DType> dtype,
                const std::vector<DeviceShape>& shapes) {
    const std::vector<float> alone = logits_of(graph, {"one", "host", 1, 1}, dtype);
    REQUIRE(alone.size() > 0);
    for (const DeviceShape& shape : shapes) {
        INFO((dtype ? dtype_name(*dtype) : "as stored") << " on " << shape.name);
        CHECK(first_difference(logits_of(graph, shape, dtype), alone) == -1);
    }
}

const std::vector<DeviceShape> kFewShapes{
    {"tp 2", "host[0-1]", 2, 1}, {"tp 3", "host[0-2]", 3, 1}, {"tp 2 x pp 2", "host[0-3]", 2, 2}};

}  // namespace

TEST_CASE("products on rounded activations have the bits of one device on any number of them",
          "[e2e]") {
    const importer::Graph graph = random_model(small_shape(), 5);
    check_bits(graph, DType::kBF16, device_shapes());
    check_bits(graph, DType::kInt4, device_shapes());
    check_bits(graph, DType::kInt8, kFewShapes);
}

TEST_CASE("where some products round their activations, the bits of the others are one device's",
          "[e2e]") {
    const importer::Graph graph = random_model(small_shape(), 6);
    importer::Graph mixed = importer::quantize_weights(graph, DType::kInt8);
    size_t kept = 0;
    for (size_t w = 0; w < graph.weights.size(); ++w)
        if (const std::string& name = graph.weights[w].name;
            name.find("o_proj") != std::string::npos ||
            name.find("down_proj") != std::string::npos) {
            mixed.weights[w] = graph.weights[w];
            ++kept;
        }
    REQUIRE(kept == 4);
    check_bits(mixed, {}, kFewShapes);
}

TEST_CASE("biases and tied weights leave the bits of rounded activations one device's", "[e2e]") {
    models::Shape shape = small_shape();
    shape.qkv_bias = shape.mlp_bias = shape.o_bias = true;
    shape.config.tied_embeddings = true;
    check_bits(random_model(shape, 7), DType::kBF16, kFewShapes);
}
