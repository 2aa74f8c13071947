// SPDX-License-Identifier: Apache-2.0
// A graph that takes and gives tensors: every operator of it is one of the ONNX standard that
// Cleave computes, over shapes that are all numbers. In: a Model without token ids. Out: its Graph,
// or why it is none.
#pragma once

#include <optional>
#include <string>

#include "importer/onnx/model.h"

namespace cleave::importer::from_onnx {

struct TensorGraph {
    std::optional<Graph> graph;
    int node = -1;       // that is in the way; -1: something of the model itself
    std::string reason;  // why it does; "its input x is f64, which is not computed"
};

// What depends on no data (shapes, constants) is evaluated and left out; so is what no output
// needs.
TensorGraph build_tensor_graph(const Model& model);

}  // namespace cleave::importer::from_onnx
