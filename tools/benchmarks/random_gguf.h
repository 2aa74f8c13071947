// SPDX-License-Identifier: Apache-2.0
// A model in GGUF, version 3, for llama.cpp beside us: a Llama without biases whose embedding table
// is tied, f32, with random weights and words. UserError where it cannot be written.
#pragma once

#include <string>

#include "importer/graph/graph.h"

namespace cleave::bench {

void write_random_gguf(const importer::ModelConfig& config, const std::string& path);

}  // namespace cleave::bench
