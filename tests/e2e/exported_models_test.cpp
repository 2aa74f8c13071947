// SPDX-License-Identifier: Apache-2.0
// Files that real exporters wrote, compared with what an independent implementation computed from
// the same weights.
#include "importer/onnx/import.h"
#include "runtime/generate/generate.h"
#include "tests/e2e/support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;

namespace {

struct Exported {
    const char* reference;
    const char* file;
};

const Exported kFloatModels[] = {
    {"stories260K", "stories260K/legacy_op17_past_sdpa.onnx"},
    {"stories260K", "stories260K/dynamo_op18_past_sdpa.onnx"},
    {"stories260K", "stories260K/dynamo_op18_past_eager.onnx"},
    {"stories260K", "stories260K/dynamo_op23_past_sdpa.onnx"},
    {"stories260K", "stories260K/genai_v0.11.4_fp32_cpu/model.onnx"},
    {"stories260K", "stories260K/mobius_default/model.onnx"},
    {"rand_gqa16", "rand_gqa16/legacy_op17_past_sdpa.onnx"},
    {"rand_gqa16", "rand_gqa16/dynamo_op18_idsonly_sdpa.onnx"},
    {"rand_gqa16", "rand_gqa16/genai0114_fp32_cpu/model.onnx"},
    {"rand_gqa16", "rand_gqa16/mobius_default/model.onnx"},
    {"rand_mha16", "rand_mha16/dynamo_op23_past_sdpa.onnx"},
    {"rand_llama3rope", "rand_llama3rope/dynamo_op18_past_sdpa.onnx"},
    {"rand_llama3rope", "rand_llama3rope/genaiHEAD_fp32_cpu/model.onnx"},
    {"rand_bias_headdim32", "rand_bias_headdim32/dynamo_op18_past_sdpa.onnx"},
    {"stories15M", "stories15M/dynamo_op18_past_sdpa_ext.onnx"},
};

void check_model(const Exported& model, const DeviceShape& shape) {
    INFO(model.file << " on " << shape.name);
    importer::Graph graph = importer::import_onnx((shared_data() / "models" / model.file).string());
    Reference reference = load_reference(model.reference);
    size_t vocab = reference.step_logits.size();
    planner::Plan plan = plan_for(graph, shape, all_logits_workload(2, 64, 32));
    Session session(plan, checked_options());
    GenerateOptions options;
    options.keep_logits = true;
    options.max_new_tokens = static_cast<int64_t>(reference.greedy.size());
    GenerateResult result = generate(session, plan, {reference.prompt}, options);
    CHECK(result.sequences[0].token_ids == reference.greedy);
    const std::vector<float>& logits = result.sequences[0].logits;
    auto row = logits.begin() + static_cast<ptrdiff_t>(reference.prefill_logits.size());
    CHECK(largest_difference({logits.begin(), row}, reference.prefill_logits) < 1e-3);
    CHECK(largest_difference({row, row + static_cast<ptrdiff_t>(vocab)}, reference.step_logits) <
          1e-3);
    options.max_new_tokens = 0;
    result = generate(session, plan, reference.padded_batch, options);
    for (size_t s = 0; s < reference.padded_batch.size(); ++s) {
        CHECK(largest_difference(result.sequences[s].logits, reference.padded_logits[s]) < 1e-3);
    }
}

}  // namespace

TEST_CASE("every float export gives the reference's logits and tokens on one device", "[e2e]") {
    CLEAVE_NEEDS_SHARED_DATA();
    for (const Exported& model : kFloatModels) {
        DYNAMIC_SECTION(model.file) { check_model(model, device_shapes().front()); }
    }
}

TEST_CASE("trained exports give the reference's logits and tokens on any devices", "[e2e]") {
    CLEAVE_NEEDS_SHARED_DATA();
    for (const DeviceShape& shape : device_shapes()) {
        DYNAMIC_SECTION(shape.name) {
            check_model({"stories260K", "stories260K/dynamo_op23_past_sdpa.onnx"}, shape);
            check_model({"stories15M", "stories15M/dynamo_op18_past_sdpa_ext.onnx"}, shape);
        }
    }
}

TEST_CASE("biases, odd head sizes and grouped heads survive an uneven split", "[e2e]") {
    CLEAVE_NEEDS_SHARED_DATA();
    for (const char* name : {"tp 3", "tp 2 x pp 2"}) {
        for (const DeviceShape& shape : device_shapes()) {
            if (std::string(shape.name) != name) continue;
            check_model({"rand_bias_headdim32", "rand_bias_headdim32/dynamo_op18_past_sdpa.onnx"},
                        shape);
            check_model({"rand_gqa16", "rand_gqa16/dynamo_op18_idsonly_sdpa.onnx"}, shape);
            check_model({"rand_mha16", "rand_mha16/dynamo_op23_past_sdpa.onnx"}, shape);
        }
    }
}

TEST_CASE("a trained export gives the reference's logits and the host's tokens on imitated GPUs",
          "[e2e]") {
    CLEAVE_NEEDS_SHARED_DATA();
    importer::Graph graph = importer::import_onnx(
        (shared_data() / "models" / "stories260K" / "dynamo_op23_past_sdpa.onnx").string());
    const Reference reference = load_reference("stories260K");
    const std::vector<DeviceShape> shapes{{"host", "host[0]", 1, 1},
                                          {"AMD, tp 8", "simt:gfx90a[0-7]", 8, 1},
                                          {"AMD, tp 4 x pp 2", "simt:gfx90a[0-7]", 4, 2},
                                          {"NVIDIA, tp 3", "simt:sm_90a[0-2]", 3, 1}};
    std::vector<int32_t> host;
    for (const DeviceShape& shape : shapes) {
        INFO(shape.name);
        planner::Plan plan = plan_for(graph, shape, all_logits_workload(1, 64, 32));
        Session session(plan, checked_options());
        GenerateOptions options;
        options.keep_logits = true;
        options.max_new_tokens = 6;
        const GenerateResult result = generate(session, plan, {reference.prompt}, options);
        const std::vector<int32_t>& made = result.sequences[0].token_ids;
        if (host.empty()) host = made;
        CHECK(made == host);
        REQUIRE(made.size() == 6);
        CHECK(std::equal(made.begin(), made.end(), reference.greedy.begin()));
        const std::vector<float>& logits = result.sequences[0].logits;
        const auto row = logits.begin() + std::ssize(reference.prefill_logits);
        CHECK(largest_difference({logits.begin(), row}, reference.prefill_logits) < 1e-3);
        CHECK(largest_difference({row, row + std::ssize(reference.step_logits)},
                                 reference.step_logits) < 1e-3);
    }
}
