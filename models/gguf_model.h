// SPDX-License-Identifier: Apache-2.0
// GGUF file -> Graph, whose weights are views of the file: blocks of quantised tensors are read as
// they lie. In: a path. What the file's architecture, keys and tensors say is understood whole, or
// a UserError names it. Keys and tensors by architecture: llama.cpp's src/llama-arch.cpp.
#pragma once

#include <string>

#include "importer/graph/graph.h"

namespace cleave::models {

// Types of 256 elements, and of 5 bits, have no kernels: their weights are dense ones of f32 that
// are expanded as they are read (Weight::gguf), and planning asks for a type of less.
importer::Graph import_gguf(const std::string& path);

}  // namespace cleave::models
