// SPDX-License-Identifier: Apache-2.0
// What each graph input is for, from how it is used: names differ from exporter to exporter.
#pragma once

#include <vector>

#include "importer/onnx/probe/probe.h"

namespace cleave::importer::from_onnx {

// One role for each of Model::inputs. No input is kTokenIds when the graph is no language model.
std::vector<InputRole> find_roles(const Model& model);

// Marks the caches that are written in place and lets their capacity be what a scenario needs,
// any number: the Graph's own cache has the workload's context.
void free_static_caches(Model& model, const std::vector<InputRole>& roles);

// Some exporters give a cache's number of heads or head size a symbol. Replaces it by the number
// that the node reading the cache shows, so that the past's length is the only symbol left beside
// the batch.
void resolve_past_sizes(Model& model, const std::vector<InputRole>& roles);

}  // namespace cleave::importer::from_onnx
