// SPDX-License-Identifier: Apache-2.0
// The reading passes, in the order in which read_model runs them. Each throws UserError naming the
// file and the node or initializer at fault.
#pragma once

#include <string>

#include "importer/onnx/import.h"
#include "importer/onnx/model.h"

namespace cleave::importer::from_onnx {

// `path`: an .onnx file, or a folder with exactly one. Gives the file's path.
std::string find_onnx_file(const std::string& path);

// Parses the file without its tensors' bytes; checks that it is an ONNX model that we can read.
std::unique_ptr<onnx::ModelProto> parse_model(const std::string& path);

// Replaces calls of model-local functions by their bodies. Refuses recursion and bodies that
// explode.
void inline_functions(onnx::ModelProto& proto, const std::string& path,
                      std::vector<std::string>& notes);

// Replaces every If that chooses between decoders with and without past (its condition is a graph
// input or a constant) by the branch that reads the cache. Of every other If the nodes of both
// branches come into the graph; what stays is an If without bodies: (condition, value if true,
// value if false) -> value.
void specialize_decoder_branches(onnx::ModelProto& proto, const std::string& path,
                                 std::vector<std::string>& notes);

// Finds a tensor's bytes: in the .onnx file, in external data (checked), or in a new blob of
// `model`.
Constant locate_tensor(Model& model, const onnx::TensorProto& tensor, const std::string& name,
                       const ImportOptions& options);

// The nodes in topological order, values and constants numbered. Refuses cycles, duplicate names
// and values that nothing makes.
void build_model(Model& model, const ImportOptions& options);

// Refuses operators whose operands have types that they cannot have.
void check_types(const Model& model);

// All of the above, after parse_model.
Model read_model(std::unique_ptr<onnx::ModelProto> proto, const std::string& path,
                 const ImportOptions& options);

}  // namespace cleave::importer::from_onnx
