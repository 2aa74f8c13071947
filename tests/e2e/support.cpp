// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/support.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include <nlohmann/json.hpp>

#include "models/llama_graph.h"
#include "planner/machine/build_machine.h"
#include "runtime/cards/cards.h"
#include "runtime/generate/philox.h"
#include "tests/support/test.h"

namespace cleave::test {

std::vector<float> read_floats(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::vector<char> bytes((std::istreambuf_iterator<char>(file)),
                            std::istreambuf_iterator<char>());
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
    return values;
}

models::Shape small_shape() {
    models::Shape shape;
    shape.name = "small";
    shape.dtype = DType::kF32;
    importer::ModelConfig& config = shape.config;
    config.vocab_size = 131;
    config.hidden_size = 48;
    config.intermediate_size = 84;
    config.num_layers = 2;
    config.num_heads = 8;
    config.num_kv_heads = 4;
    config.head_dim = 8;
    config.max_positions = 256;
    config.rope_theta = 10000.0;
    return shape;
}

importer::Graph random_model(const models::Shape& shape, uint64_t seed) {
    importer::Graph graph = models::build_llama_graph(shape, DType::kF32);
    for (size_t w = 0; w < graph.weights.size(); ++w) {
        importer::Weight& weight = graph.weights[w];
        bool is_matrix = weight.shape.size() == 2;
        double spread = is_matrix ? 2.0 / std::sqrt(static_cast<double>(weight.shape[1])) : 0.5;
        std::vector<float> values(static_cast<size_t>(weight.num_elements()));
        for (size_t i = 0; i < values.size(); ++i) {
            double uniform = runtime::uniform_draw(seed, w, i) * 2.0 - 1.0;
            values[i] = static_cast<float>((is_matrix ? 0.0 : 1.0) + spread * uniform);
        }
        auto bytes = std::as_bytes(std::span(values));
        weight.data.blob = importer::BlobId(graph.blobs.size());
        weight.data.length = bytes.size();
        graph.blobs.emplace_back(bytes.begin(), bytes.end());
    }
    return graph;
}

const std::vector<DeviceShape>& device_shapes() {
    static const std::vector<DeviceShape> kShapes{
        {"one device", "host", 1, 1},      {"tp 2", "host[0-1]", 2, 1},
        {"pp 2", "host[0-1]", 1, 2},       {"tp 2 x pp 2", "host[0-3]", 2, 2},
        {"tp 3", "host[0-2]", 3, 1},       {"tp 8", "host[0-7]", 8, 1},
        {"tp 4 x pp 2", "host[0-7]", 4, 2}};
    return kShapes;
}

planner::Plan plan_for(const importer::Graph& graph, const DeviceShape& shape,
                       const planner::Workload& workload) {
    planner::HostFacts facts{2, int64_t{4} << 30, 20'000'000'000, 100'000'000'000, ""};
    planner::PlanOptions options;
    options.tensor_parallel = shape.tensor_parallel;
    options.pipeline_stages = shape.pipeline_stages;
    runtime::Drivers drivers;
    const runtime::RealGpus gpus(drivers);
    return make_plan(graph, build_machine(planner::parse_devices(shape.devices), facts, &gpus),
                     workload, options);
}

planner::Workload all_logits_workload(int64_t batch, int64_t context, int64_t prefill_chunk) {
    planner::Workload workload;
    workload.batch = batch;
    workload.context = context;
    workload.prompt_tokens = context / 2;
    workload.prefill_chunk = prefill_chunk;
    workload.all_logits = true;
    workload.compute = planner::ComputeMode::kExact;
    return workload;
}

runtime::SequenceResult continue_prompt(const importer::Graph& graph, const DeviceShape& shape,
                                        const std::vector<int32_t>& prompt, size_t new_tokens,
                                        std::optional<DType> kv_dtype) {
    planner::Workload workload = all_logits_workload(1, 16, 8);
    workload.kv_dtype = kv_dtype;
    planner::Plan plan = plan_for(graph, shape, workload);
    runtime::Session session(plan, checked_options());
    runtime::GenerateOptions options;
    options.keep_logits = true;
    options.max_new_tokens = static_cast<int64_t>(new_tokens);
    return generate(session, plan, {prompt}, options).sequences.at(0);
}

runtime::SessionOptions checked_options() {
    runtime::SessionOptions options;
    options.record_trace = true;
    options.poison = true;
    return options;
}

runtime::SessionOptions reproducible_options() {
    runtime::SessionOptions options = checked_options();
    options.compile.reproducible = true;
    return options;
}

runtime::SessionOptions options_for_fakes() {
    runtime::SessionOptions options;
    options.poison = true;
    options.compile.gpu_compiler = "simt";
    options.settle_seconds = options.watchdog_seconds;  // a sanitizer on a busy machine is slow
    return options;
}

Reference load_reference(const std::string& name) {
    std::filesystem::path folder = shared_data() / "reference";
    std::ifstream file(folder / (name + ".json"));
    nlohmann::json json = nlohmann::json::parse(file);
    Reference reference;
    reference.prompt = json["prompt_ids"].get<std::vector<int32_t>>();
    auto greedy = json["greedy_ids"].get<std::vector<int32_t>>();
    reference.greedy.assign(greedy.begin() + static_cast<ptrdiff_t>(reference.prompt.size()),
                            greedy.end());
    reference.prefill_logits = read_floats(folder / (name + ".logits_prefill.f32"));
    reference.step_logits = read_floats(folder / (name + ".logits_step1.f32"));
    std::vector<float> padded = read_floats(folder / (name + ".leftpad_logits.f32"));
    auto ids = json["leftpad"]["input_ids"].get<std::vector<std::vector<int32_t>>>();
    auto mask = json["leftpad"]["attention_mask"].get<std::vector<std::vector<int>>>();
    size_t vocab = reference.step_logits.size();
    for (size_t s = 0; s < ids.size(); ++s) {
        std::vector<int32_t>& tokens = reference.padded_batch.emplace_back();
        std::vector<float>& logits = reference.padded_logits.emplace_back();
        for (size_t t = 0; t < ids[s].size(); ++t) {
            if (mask[s][t] == 0) continue;
            tokens.push_back(ids[s][t]);
            auto row = padded.begin() + static_cast<ptrdiff_t>((s * ids[s].size() + t) * vocab);
            logits.insert(logits.end(), row, row + static_cast<ptrdiff_t>(vocab));
        }
    }
    return reference;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
    if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
    double largest = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
        if (!(difference <= largest)) largest = std::isnan(difference) ? INFINITY : difference;
    }
    return largest;
}

}  // namespace cleave::test
