// SPDX-License-Identifier: Apache-2.0
// Resolves the MODEL argument: an .onnx file, a folder with one, a Hugging Face folder, a GGUF
// file, a .plan file, a shape name, or a config.json.
#pragma once

#include <optional>
#include <string>

#include "importer/graph/graph.h"
#include "planner/plan/plan.h"
#include "tools/cli/options.h"

namespace cleave::tools {

enum class ModelKind : uint8_t { kOnnx, kPlan, kShape };

struct LoadedModel {
    ModelKind kind = ModelKind::kOnnx;
    importer::Graph graph;              // of a plan, too
    std::optional<planner::Plan> plan;  // for a .plan file
    std::string folder;  // of tokenizer and generation configs, or the GGUF file; empty: none
    int64_t max_positions = 0;  // the model's context limit, 0 when nothing says
};

// `dtype` is --dtype (weights of a shape name). UserError naming the argument and what is
// supported.
LoadedModel load_model(const ModelFlags& flags, const std::string& dtype);

// Where `flags` names a .plan file, from which `plan` is: says on standard error which folders
// beside the file's own it reads weights from. A plan names its files by path, anywhere.
void name_weight_folders(const ModelFlags& flags, const planner::Plan& plan);

// Paths of the graph's files as seen from anywhere, for plans that are saved.
void make_paths_absolute(importer::Graph& graph);

}  // namespace cleave::tools
