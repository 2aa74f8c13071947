// SPDX-License-Identifier: Apache-2.0
// A model as people have it on disk: an .onnx file, a folder with one, a Hugging Face folder, or a
// GGUF file.
#pragma once

#include <filesystem>

#include "importer/graph/graph.h"
#include "importer/onnx/import.h"

namespace cleave::models {

// Weights are located, not read. UserError naming what the file or folder is instead, and the way
// on. Any thread.
importer::Graph open_model(const std::filesystem::path& path,
                           const importer::ImportOptions& options = {});

// UserError for a folder without ONNX file and safetensors, and for a file that is neither, which
// names what is there, and the way on.
void refuse_what_is_no_model(const std::filesystem::path& path);

// Whether open_model takes the folder: it has one .onnx file, or weights as Hugging Face has them.
bool is_model_folder(const std::filesystem::path& folder);

}  // namespace cleave::models
