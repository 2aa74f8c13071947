// SPDX-License-Identifier: Apache-2.0
// Logits that are no numbers end as the user's error, whoever chooses the token and wherever the
// model ran.
#include <cstring>
#include <limits>

#include "runtime/generate/generate.h"
#include "runtime/generate/score.h"
#include "tests/e2e/support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;
using Catch::Matchers::Contains;

namespace {

template <class Act>
void change(importer::Graph& graph, const std::string& part, Act act) {
    int changed = 0;
    for (importer::Weight& weight : graph.weights) {
        if (weight.name.find(part) == std::string::npos) continue;
        auto& blob = graph.blobs[weight.data.blob.index()];
        std::vector<float> values(blob.size() / sizeof(float));
        std::memcpy(values.data(), blob.data(), blob.size());
        act(values);
        std::memcpy(blob.data(), values.data(), blob.size());
        ++changed;
    }
    REQUIRE(changed > 0);
}

// Within f32's range, but values between the two matrices are beyond f16's.
importer::Graph model_beyond_f16(const char* first, float by, const char* second, float back) {
    importer::Graph graph = random_model(small_shape(), 1);
    const auto scale = [&](const char* part, float factor) {
        change(graph, part, [factor](std::vector<float>& values) {
            for (float& v : values) v *= factor;
        });
    };
    scale(first, by);
    scale(second, back);
    return graph;
}

void make_row_nan(importer::Graph& graph, int32_t token) {
    change(graph, "embed_tokens", [token](std::vector<float>& values) {
        const size_t hidden = small_shape().config.hidden_size;
        values[static_cast<size_t>(token) * hidden] = std::numeric_limits<float>::quiet_NaN();
    });
}

std::vector<int32_t> run(const importer::Graph& graph, const DeviceShape& shape, DType dtype,
                         const std::vector<std::vector<int32_t>>& prompts,
                         const GenerateOptions& options, DType kv_dtype = DType::kF32) {
    planner::Workload workload = all_logits_workload(2, 64, 64);
    workload.dtype = dtype;
    workload.kv_dtype = kv_dtype;
    planner::Plan plan = plan_for(graph, shape, workload);
    Session session(plan, checked_options());
    return generate(session, plan, prompts, options).sequences[0].token_ids;
}

GenerateOptions options_of(int64_t tokens, float temperature = 0, bool keep = false) {
    GenerateOptions options;
    options.max_new_tokens = tokens;
    options.sampling.temperature = temperature;
    options.keep_logits = keep;
    return options;
}

std::vector<int32_t> counting(size_t n) {
    std::vector<int32_t> tokens(n);
    for (size_t i = 0; i < n; ++i) tokens[i] = static_cast<int32_t>(i + 1);
    return tokens;
}

constexpr DeviceShape kHost{"host", "host[0]", 1, 1}, kGpu{"sm_80", "simt:sm_80[0]", 1, 1},
    kAmd{"gfx1100", "simt:gfx1100[0]", 1, 1};

}  // namespace

TEST_CASE("activations beyond f16 give the host's tokens on GPUs, whatever the weights are",
          "[e2e]") {
    const importer::Graph graph = model_beyond_f16("up_proj", 1e5f, "down_proj", 1e-2f);
    const std::vector<std::vector<int32_t>> prompts{counting(24)};
    for (DType dtype : {DType::kF16, DType::kF8E4M3, DType::kInt8, DType::kInt4, DType::kMxfp4}) {
        const std::vector<int32_t> expected = run(graph, kHost, dtype, prompts, options_of(4));
        for (const char* device :
             {"simt:sm_75[0]", "simt:sm_80[0]", "simt:sm_90a[0]", "simt:gfx90a[0]",
              "simt:gfx942[0]", "simt:gfx1100[0]", "simt:gfx1201[0]"}) {
            CAPTURE(device, dtype_name(dtype));
            CHECK(run(graph, {device, device, 1, 1}, dtype, prompts, options_of(4)) == expected);
        }
    }
}

TEST_CASE("values beyond f16 in a cache of f16 are the user's error, with the type that holds them",
          "[e2e]") {
    const importer::Graph graph = model_beyond_f16("v_proj", 1e7f, "o_proj", 1e-7f);
    const std::vector<std::vector<int32_t>> prompts{counting(24)};
    for (const DeviceShape& shape : {kHost, kGpu, kAmd})
        for (const GenerateOptions& options :
             {options_of(2), options_of(2, 1.0f), options_of(2, 0, true)}) {
            CAPTURE(shape.name, options.sampling.temperature, options.keep_logits);
            const std::string text =
                user_error([&] { run(graph, shape, DType::kF32, prompts, options, DType::kF16); });
            CHECK_THAT(text, Contains("position"));
            CHECK_THAT(text, Contains("of the prompt are not numbers"));
            CHECK_THAT(text, Contains(shape.devices));
            CHECK_THAT(text, Contains("65504") && Contains("$kv_dtype bf16 or f32"));
        }
    // What holds them runs.
    const std::vector<int32_t> expected = run(graph, kHost, DType::kF32, prompts, options_of(4));
    for (const DeviceShape& shape : {kGpu, kAmd}) {
        CHECK(run(graph, shape, DType::kF32, prompts, options_of(4)) == expected);
        CHECK_NOTHROW(run(graph, shape, DType::kF32, prompts, options_of(4), DType::kBF16));
    }
}

TEST_CASE("weights that are no numbers are the user's error, with the sequence and the position",
          "[e2e]") {
    for (const DeviceShape& shape : {kHost, kGpu})
        for (float temperature : {0.0f, 1.0f}) {
            CAPTURE(shape.name, temperature);
            importer::Graph graph = random_model(small_shape(), 1);
            const std::vector<std::vector<int32_t>> prompts{{1, 2, 3}, {4, 5, 77, 6}};
            const GenerateOptions options = options_of(3, temperature);
            const std::vector<int32_t> tokens =
                run(graph, shape, DType::kF32, {prompts[0]}, options);
            make_row_nan(graph, 77);
            const std::string text =
                user_error([&] { run(graph, shape, DType::kF32, prompts, options); });
            CHECK_THAT(text, Contains("the logits at position 3 of prompt 2 are not numbers"));
            CHECK_THAT(text, Contains(shape.devices) && Contains("f32") && !Contains("65504"));
            // The first token that is written is the one that it meets.
            make_row_nan(graph, tokens[0]);
            const std::string later =
                user_error([&] { run(graph, shape, DType::kF32, {prompts[0]}, options); });
            CHECK_THAT(later, Contains("at position 3 (new token 1) of the prompt are not"));
        }
}

TEST_CASE("a text whose logits are no numbers has no perplexity", "[e2e]") {
    importer::Graph graph = random_model(small_shape(), 1);
    make_row_nan(graph, 7);
    planner::Plan plan = plan_for(graph, kHost, all_logits_workload(1, 64, 64));
    Session session(plan, checked_options());
    CHECK_THAT(user_error([&] { score(session, plan, {1, 2, 7, 3}); }),
               Contains("of the text are not numbers"));
}
