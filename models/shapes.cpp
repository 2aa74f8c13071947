// SPDX-License-Identifier: Apache-2.0
#include "models/shapes.h"

#include <nlohmann/json.hpp>

#include "models/config_named.h"

namespace cleave::models {
namespace {

struct Row {
    const char* name;
    int64_t vocab, hidden, intermediate, layers, heads, kv_heads, positions;
    double theta;
    bool tied;
    double scaling;  // llama3 rope scaling factor, 0: none
    DType dtype;
};

// From the published config.json of each model; llama-110m and stories from llama2.c's README.
constexpr Row kRows[] = {
    {"stories-260k", 512, 64, 172, 5, 8, 4, 512, 1e4, true, 0, DType::kF32},
    {"stories-15m", 32000, 288, 768, 6, 6, 6, 256, 1e4, true, 0, DType::kF32},
    {"llama-110m", 32000, 768, 2048, 12, 12, 12, 1024, 1e4, true, 0, DType::kBF16},
    {"tinyllama-1.1b", 32000, 2048, 5632, 22, 32, 4, 2048, 1e4, false, 0, DType::kBF16},
    {"llama-3.2-1b", 128256, 2048, 8192, 16, 32, 8, 131072, 5e5, true, 32, DType::kBF16},
    {"llama-3.2-3b", 128256, 3072, 8192, 28, 24, 8, 131072, 5e5, true, 32, DType::kBF16},
    {"llama-2-7b", 32000, 4096, 11008, 32, 32, 32, 4096, 1e4, false, 0, DType::kBF16},
    {"llama-3-8b", 128256, 4096, 14336, 32, 32, 8, 8192, 5e5, false, 0, DType::kBF16},
    {"llama-3.1-8b", 128256, 4096, 14336, 32, 32, 8, 131072, 5e5, false, 8, DType::kBF16},
    {"llama-2-70b", 32000, 8192, 28672, 80, 64, 8, 4096, 1e4, false, 0, DType::kBF16},
    {"llama-3-70b", 128256, 8192, 28672, 80, 64, 8, 8192, 5e5, false, 0, DType::kBF16},
    {"llama-3.1-70b", 128256, 8192, 28672, 80, 64, 8, 131072, 5e5, false, 8, DType::kBF16},
    {"llama-3.3-70b", 128256, 8192, 28672, 80, 64, 8, 131072, 5e5, false, 8, DType::kBF16},
    {"llama-3.1-405b", 128256, 16384, 53248, 126, 128, 8, 131072, 5e5, false, 8, DType::kBF16},
};

Shape shape_of(const Row& row) {
    Shape shape;
    shape.name = row.name;
    shape.config.vocab_size = row.vocab;
    shape.config.hidden_size = row.hidden;
    shape.config.intermediate_size = row.intermediate;
    shape.config.num_layers = row.layers;
    shape.config.num_heads = row.heads;
    shape.config.num_kv_heads = row.kv_heads;
    shape.config.head_dim = row.hidden / row.heads;
    shape.config.max_positions = row.positions;
    shape.config.rope_theta = row.theta;
    shape.config.tied_embeddings = row.tied;
    shape.rope_scaling_factor = row.scaling;
    shape.dtype = row.dtype;
    return shape;
}

}  // namespace

std::vector<std::string> shape_names() {
    std::vector<std::string> names;
    for (const Row& row : kRows) names.emplace_back(row.name);
    for (std::string& name : config_names()) names.push_back(std::move(name));
    return names;
}

std::optional<Shape> find_shape(const std::string& name) {
    for (const Row& row : kRows)
        if (name == row.name) return shape_of(row);
    if (const std::string_view config = named_config(name); !config.empty()) {
        Shape shape = shape_from_json(nlohmann::json::parse(config), name);
        shape.name = name;
        return shape;
    }
    return std::nullopt;
}

}  // namespace cleave::models
