// SPDX-License-Identifier: Apache-2.0
// Llama shapes by name, and from a Hugging Face config.json.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "importer/graph/graph.h"

namespace cleave::models {

struct Shape {
    std::string name;
    importer::ModelConfig config;
    bool qkv_bias = false;
    bool o_bias = false;
    bool mlp_bias = false;
    int64_t sliding_window = 0;      // 0: none
    double rope_scaling_factor = 0;  // llama3 scaling when > 0
    double rope_low_freq_factor = 1;
    double rope_high_freq_factor = 4;
    int64_t rope_original_positions = 8192;
    DType dtype = DType::kBF16;  // default weights
};

std::vector<std::string> shape_names();
std::optional<Shape> find_shape(const std::string& name);

// Reads a config.json of a Llama-like model. UserError naming file and field for what it lacks or
// does not know.
Shape shape_from_config(const std::string& path);

}  // namespace cleave::models
