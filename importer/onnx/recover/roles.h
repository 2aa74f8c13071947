// SPDX-License-Identifier: Apache-2.0
// What each graph input is for, from how it is used: names differ from exporter to exporter.
#pragma once

#include <vector>

#include "importer/onnx/probe/probe.h"

namespace cleave::importer::from_onnx {

// One role for each of Model::inputs. No input is kTokenIds when the graph is no language model.
std::vector<InputRole> find_roles(const Model& model);

}  // namespace cleave::importer::from_onnx
