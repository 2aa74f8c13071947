// SPDX-License-Identifier: Apache-2.0
// Hugging Face folder -> ONNX file whose external data are the folder's own .safetensors files: no
// weight is read or copied. In: config.json and the headers of the weights' files. Out: a model in
// memory, its Graph, or a file. What is not understood of either is a UserError that names it.
#pragma once

#include <string>

#include "importer/graph/graph.h"
#include "models/onnx_writer.h"

namespace cleave::models {

// The Graph of a folder, as import_onnx gives it for the file that `write_converted` writes.
// Tensors that are missing, left over, of another shape or of another type are UserErrors.
importer::Graph import_folder(const std::string& folder);

// The Graph of any shape, without weights; a plain one is build_llama_graph's.
importer::Graph graph_of_shape(const Shape& shape, DType weight_dtype);
// The same with weights that are named and laid out as a Hugging Face folder has them: each of one
// tensor ([out, in] for a matrix), which Weight::initializers names.
importer::Graph graph_of_tensors(const Shape& shape, DType weight_dtype);

struct ConvertOptions {
    std::string output;  // an .onnx file, or a folder for model.onnx; empty: in the model's folder
    OnnxForm form = OnnxForm::kAttention;
    bool copy = false;  // weights beside an output elsewhere are copies, not hard links
};

// Writes the ONNX file, and beside it, in another folder than the model's, its weights and
// tokenizer. Returns the file's path. Everything or nothing is there afterwards.
std::string write_converted(const std::string& folder, const ConvertOptions& options);

}  // namespace cleave::models
