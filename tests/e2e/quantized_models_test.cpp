// SPDX-License-Identifier: Apache-2.0
// Quantised models from file to logits on every shape of devices: the weights stay quantised in
// device memory, cut between blocks, and give the logits of the dequantised matrices.
#include <cmath>
#include <map>

#include "importer/onnx/import.h"
#include "importer/weights/quantize.h"
#include "importer/weights/quantized_shard.h"
#include "models/onnx_writer.h"
#include "runtime/generate/generate.h"
#include "tests/e2e/support.h"
#include "tests/support/onnx_quantize.h"
#include "tests/support/reference.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;

namespace {

using Form = QuantizeOptions::Form;
using Zeros = QuantizeOptions::ZeroPoints;

const std::vector<int32_t> kPrompt{1, 7, 33, 2, 60, 12, 12, 5, 99, 41, 3, 8, 70};

struct Run {
    std::vector<int32_t> tokens;
    std::vector<float> logits;  // of the prompt's tokens, then of the new ones
};

Run run(const importer::Graph& graph, const DeviceShape& shape, const std::vector<int32_t>& prompt,
        int64_t new_tokens, int64_t chunk = 32) {
    planner::Plan plan = plan_for(graph, shape, all_logits_workload(1, 64, chunk));
    Session session(plan, checked_options());
    GenerateOptions options;
    options.keep_logits = true;
    options.max_new_tokens = new_tokens;
    GenerateResult result = generate(session, plan, {prompt}, options);
    return {result.sequences[0].token_ids, result.sequences[0].logits};
}

// Logits by the reference of the prompt and of the tokens that were generated, all but the last.
std::vector<float> reference_of(const importer::Graph& graph, std::vector<int32_t> tokens,
                                const std::vector<int32_t>& generated) {
    if (!generated.empty()) tokens.insert(tokens.end(), generated.begin(), generated.end() - 1);
    const std::vector<double> logits = test::reference_logits(graph, tokens);
    return {logits.begin(), logits.end()};
}

std::filesystem::path write_model(const std::filesystem::path& folder,
                                  const QuantizeOptions& options, models::OnnxForm form, bool tied,
                                  bool static_cache = false) {
    models::Shape shape = small_shape();
    shape.config.hidden_size = 64;
    shape.config.intermediate_size = 100;  // no multiple of a block
    shape.config.tied_embeddings = tied;
    shape.variation.static_cache = static_cache;
    models::WriteOptions write;
    write.form = form;
    write.external_data = false;
    const std::string plain = models::write_onnx_llama(shape, folder.string(), write);
    test::quantize_onnx(plain, (folder / "quantized.onnx").string(), options);
    return folder / "quantized.onnx";
}

// One device and tp 3: each form of weights in whole, and cut unequally along both axes. One form
// runs on every shape.
std::vector<DeviceShape> some_shapes() { return {device_shapes()[0], device_shapes()[4]}; }

// The reference multiplies the same rounded weights in double. f32 sums of at most 100 products are
// off by 100 * 2^-24 = 6e-6 of their terms' magnitudes, of order 1; of 2 layers with 7 matrices
// each, one behind the other, less than 1e-4.
void check_on(const std::vector<DeviceShape>& shapes, const importer::Graph& graph,
              const std::vector<int32_t>& prompt, double tolerance) {
    std::vector<int32_t> tokens;
    std::vector<float> expected;
    for (const DeviceShape& shape : shapes) {
        INFO(shape.name);
        const Run r = run(graph, shape, prompt, 4);
        if (tokens.empty()) {
            tokens = r.tokens;
            expected = reference_of(graph, prompt, tokens);
        }
        CHECK(r.tokens == tokens);
        CHECK(largest_difference(r.logits, expected) < tolerance);
    }
}

// Bytes of the arenas of weights, and what the quantised shards in them are packed into.
void check_memory(const importer::Graph& graph, const DeviceShape& shape) {
    const planner::Plan plan = plan_for(graph, shape, all_logits_workload(1, 64, 32));
    std::vector<int64_t> bytes(plan.machine.devices.size());
    size_t quantized = 0;
    for (const planner::WeightShard& s : plan.weights) {
        const importer::Weight& w = plan.graph.weight(s.weight);
        int64_t exact = dtype_bytes(s.dtype, s.rows.size() * s.columns.size());
        if (w.shape.size() < 2) exact = dtype_bytes(s.dtype, s.rows.size());
        if (importer::stays_quantized(w, s.dtype)) {
            ++quantized;
            exact = importer::quantized_layout(importer::quantized_format(w), s.rows.size(),
                                               s.columns.size())
                        .bytes;
        }
        CHECK(plan.buffer(s.buffer).size == exact);
        bytes[s.device.index()] += (exact + 255) / 256 * 256;
    }
    CHECK(quantized > 0);
    for (const planner::RopeShard& s : plan.rope_tables)
        bytes[s.device.index()] += (plan.buffer(s.buffer).size + 255) / 256 * 256;
    for (const planner::DeviceMemory& m : plan.memory) CHECK(m.weights == bytes[m.device.index()]);
}

// Integers are rounded by all of a product's input: its matrix is cut by rows alone, and only keys'
// and values' rows may be on two devices.
void check_each_row_once(const planner::Plan& plan) {
    std::map<importer::WeightId, int64_t> rows;
    for (const planner::WeightShard& shard : plan.weights) {
        const importer::Weight& weight = plan.graph.weight(shard.weight);
        if (!weight.quantization.dynamic_activations) continue;
        CHECK(shard.columns.size() == weight.shape[1]);
        rows[shard.weight] += shard.rows.size();
    }
    for (const importer::Op& op : plan.graph.ops) {
        const bool repeats = op.name.find("k_proj") != std::string::npos ||
                             op.name.find("v_proj") != std::string::npos;
        if (op.kind != importer::OpKind::kLinear || repeats) continue;
        INFO(op.name);
        CHECK(rows[op.weights[0]] == plan.graph.weight(op.weights[0]).shape[0]);
    }
}

}  // namespace

TEST_CASE("MatMulNBits of every block and zero point runs on any devices", "[e2e]") {
    struct Case {
        DType code;
        int64_t block;
        Zeros zeros;
    };
    for (const Case& c : {Case{DType::kUInt4, 16, Zeros::kNone},
                          {DType::kUInt4, 32, Zeros::kInteger},
                          {DType::kUInt4, 64, Zeros::kFloating},
                          {DType::kUInt4, 128, Zeros::kInteger},
                          {DType::kUInt8, 32, Zeros::kInteger}}) {
        INFO(dtype_name(c.code) << " blocks of " << c.block << " zero points "
                                << static_cast<int>(c.zeros));
        TemporaryFolder folder;
        QuantizeOptions options;
        options.code = c.code;
        options.block = c.block;
        options.zero_points = c.zeros;
        const auto path =
            write_model(folder.path(), options, models::OnnxForm::kGroupQueryAttention, false);
        check_on(c.block == 32 && c.code == DType::kUInt4 ? device_shapes() : some_shapes(),
                 importer::import_onnx(path.string()), kPrompt, 1e-4);
    }
}

TEST_CASE("DequantizeLinear by tensor, channel and block runs on any devices", "[e2e]") {
    struct Case {
        DType code;
        int64_t block;
        bool one_scale;
        Zeros zeros;
    };
    for (const Case& c : {Case{DType::kInt4, 32, false, Zeros::kNone},
                          {DType::kUInt4, 0, false, Zeros::kInteger},
                          {DType::kInt8, 0, true, Zeros::kNone},
                          {DType::kUInt8, 32, false, Zeros::kInteger},
                          {DType::kF8E4M3, 0, false, Zeros::kNone},
                          {DType::kMxfp4, 32, false, Zeros::kNone}}) {
        INFO(dtype_name(c.code) << " blocks of " << c.block << (c.one_scale ? " one scale" : ""));
        TemporaryFolder folder;
        QuantizeOptions options;
        options.form = Form::kDequantizeLinear;
        options.code = c.code;
        options.block = c.block;
        options.one_scale = c.one_scale;
        options.zero_points = c.zeros;
        // FLOAT8E8M0 scales are of opset 24, which the form with a static cache has.
        const auto path = write_model(folder.path(), options, models::OnnxForm::kAttention, false,
                                      c.code == DType::kMxfp4);
        check_on(some_shapes(), importer::import_onnx(path.string()), kPrompt, 1e-4);
    }
}

TEST_CASE("a quantised embedding is read by rows, and shared with a tied lm_head", "[e2e]") {
    for (bool tied : {false, true})
        for (DType code : {DType::kUInt4, DType::kUInt8}) {
            INFO(dtype_name(code) << (tied ? " tied" : ""));
            TemporaryFolder folder;
            QuantizeOptions options;
            options.code = code;
            options.zero_points = tied ? Zeros::kInteger : Zeros::kNone;
            options.embedding = true;
            const auto path =
                write_model(folder.path(), options, models::OnnxForm::kDecomposed, tied);
            const importer::Graph graph = importer::import_onnx(path.string());
            CHECK(graph.config.tied_embeddings == tied);
            CHECK((graph.ops.front().weights == graph.ops.back().weights) == tied);
            CHECK(graph.weight(graph.ops.front().weights[0]).dtype == code);
            check_on(some_shapes(), graph, kPrompt, 1e-4);
        }
}

TEST_CASE(
    "weights given as --dtype int4, int8, f8e4m3 or mxfp4 are quantised as shards are cut, alike "
    "on "
    "any devices",
    "[e2e]") {
    for (bool tied : {false, true}) {
        TemporaryFolder folder;
        write_model(folder.path(), {}, models::OnnxForm::kGroupQueryAttention, tied);
        const importer::Graph dense =
            importer::import_onnx((std::filesystem::path(folder.path()) / "model.onnx").string());
        for (DType to : {DType::kInt4, DType::kInt8, DType::kF8E4M3, DType::kMxfp4}) {
            INFO(dtype_name(to) << (tied ? " tied" : ""));
            const importer::Graph graph = importer::quantize_weights(dense, to);
            check_on(to == DType::kInt4 && !tied ? device_shapes() : some_shapes(), graph, kPrompt,
                     1e-4);
            check_memory(graph, device_shapes()[4]);
        }
    }
}

TEST_CASE("the memory of quantised weights is counted to the byte", "[e2e]") {
    TemporaryFolder folder;
    QuantizeOptions options;
    options.zero_points = Zeros::kInteger;
    options.embedding = true;
    const auto path = write_model(folder.path(), options, models::OnnxForm::kDecomposed, true);
    const importer::Graph graph = importer::import_onnx(path.string());
    for (const DeviceShape& shape : device_shapes()) {
        INFO(shape.name);
        check_memory(graph, shape);
    }
}

TEST_CASE("products of integers give the same logits on any devices and in any chunks", "[e2e]") {
    for (DType code : {DType::kInt8, DType::kUInt8}) {
        INFO(dtype_name(code));
        TemporaryFolder folder;
        QuantizeOptions options;
        options.form = Form::kMatMulInteger;
        options.code = code;
        options.block = 0;
        options.zero_points = Zeros::kInteger;
        options.one_scale = code == DType::kInt8;
        const auto path = write_model(folder.path(), options, models::OnnxForm::kDecomposed, false);
        const importer::Graph graph = importer::import_onnx(path.string());
        const Run one = run(graph, device_shapes().front(), kPrompt, 4);
        const auto rows = static_cast<ptrdiff_t>(kPrompt.size()) * graph.config.vocab_size;
        const std::vector<float> prefill(one.logits.begin(), one.logits.begin() + rows);
        // A rounding that differs in the last place of f32 may move an activation by one of 256
        // steps.
        CHECK(largest_difference(prefill, reference_of(graph, kPrompt, {})) < 0.05);
        for (const DeviceShape& shape : some_shapes()) {
            check_each_row_once(plan_for(graph, shape, all_logits_workload(1, 64, 32)));
            for (int64_t chunk : {int64_t{1}, int64_t{5}}) {
                INFO(shape.name << " chunk " << chunk);
                const Run r = run(graph, shape, kPrompt, 4, chunk);
                CHECK(r.tokens == one.tokens);
                CHECK(largest_difference(r.logits, one.logits) == 0.0);
            }
        }
    }
}

TEST_CASE("the option --dtype expands quantised weights, and is refused for products of integers",
          "[e2e]") {
    TemporaryFolder folder;
    QuantizeOptions options;
    auto path = write_model(folder.path(), options, models::OnnxForm::kDecomposed, false);
    importer::Graph graph = importer::import_onnx(path.string());
    planner::Workload workload = all_logits_workload(1, 64, 32);
    workload.dtype = DType::kF32;
    planner::Plan plan = plan_for(graph, device_shapes()[1], workload);
    for (const planner::WeightShard& s : plan.weights) CHECK(s.dtype == DType::kF32);
    Session session(plan, checked_options());
    GenerateOptions generation;
    generation.keep_logits = true;
    generation.max_new_tokens = 4;
    const GenerateResult result = generate(session, plan, {kPrompt}, generation);
    CHECK(largest_difference(result.sequences[0].logits,
                             reference_of(graph, kPrompt, result.sequences[0].token_ids)) < 1e-4);

    options.form = Form::kMatMulInteger;
    options.code = DType::kInt8;
    options.block = 0;
    path = write_model(folder.path(), options, models::OnnxForm::kDecomposed, false);
    graph = importer::import_onnx(path.string());
    CHECK_THAT(user_error([&] { plan_for(graph, device_shapes()[0], workload); }),
               Catch::Matchers::Contains("MatMulInteger") &&
                   Catch::Matchers::Contains("leave $dtype out"));
}

TEST_CASE("quantised exports give ONNX Runtime's logits on any devices", "[e2e]") {
    CLEAVE_NEEDS_SHARED_DATA();
    const Reference reference = load_reference("rand_gqa16");
    for (const char* file :
         {"rand_gqa16/genai0114_int4_cpu", "rand_gqa16/genai0114_int4_cpu_qdq"}) {
        const auto folder = shared_data() / "models" / file;
        const importer::Graph graph = importer::import_onnx((folder / "model.onnx").string());
        const std::vector<float> expected = read_floats(folder / "ort130.logits_prefill.f32");
        // ONNX Runtime rounds activations to 8 bits here (accuracy_level 4); the dequantised
        // weights are closer to the model.
        for (const DeviceShape& shape : some_shapes()) {
            INFO(file << " on " << shape.name);
            const Run r = run(graph, shape, reference.prompt, 0);
            CHECK(largest_difference(r.logits, expected) < 0.3);
        }
        check_on({device_shapes()[0]}, graph, reference.prompt, 1e-3);
    }
}

TEST_CASE("quantised trained exports give the logits of their dequantised weights on any devices",
          "[e2e]") {
    CLEAVE_NEEDS_SHARED_DATA();
    const Reference reference = load_reference("stories260K");
    const auto models = shared_data() / "models" / "stories260K";
    const importer::Graph int4 =
        importer::import_onnx((models / "genai_v0.11.4_int4_cpu" / "model.onnx").string());
    check_on(device_shapes(), int4, reference.prompt, 1e-3);
    const importer::Graph int8 =
        importer::import_onnx((models / "derived" / "legacy17_dynamic_int8.onnx").string());
    const Run one = run(int8, device_shapes().front(), reference.prompt, 4);
    const auto rows = static_cast<ptrdiff_t>(reference.prompt.size()) * int8.config.vocab_size;
    const std::vector<float> prefill(one.logits.begin(), one.logits.begin() + rows);
    CHECK(largest_difference(prefill, reference_of(int8, reference.prompt, {})) < 0.3);
    for (const DeviceShape& shape : some_shapes()) {
        INFO(shape.name);
        const Run r = run(int8, shape, reference.prompt, 4, 5);
        CHECK(r.tokens == one.tokens);
        CHECK(largest_difference(r.logits, one.logits) == 0.0);
    }
}

TEST_CASE("prompts of unequal length are refused where activations are quantised together",
          "[e2e]") {
    TemporaryFolder folder;
    QuantizeOptions options;
    options.form = Form::kMatMulInteger;
    options.code = DType::kInt8;
    options.block = 0;
    const auto path = write_model(folder.path(), options, models::OnnxForm::kDecomposed, false);
    const importer::Graph graph = importer::import_onnx(path.string());
    planner::Plan plan = plan_for(graph, device_shapes()[0], all_logits_workload(2, 64, 32));
    Session session(plan, checked_options());
    CHECK_THAT(user_error([&] {
                   generate(session, plan, {{1, 2, 3}, {4, 5}}, {2, {}, {}, false, {}, nullptr});
               }),
               Catch::Matchers::Contains("run them one by one"));
}
