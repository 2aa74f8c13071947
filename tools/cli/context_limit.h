// SPDX-License-Identifier: Apache-2.0
// The longest context of a model: what its graph says, else the files beside it (config.json,
// genai_config.json); 0 when nothing says.
#pragma once

#include <filesystem>

#include "importer/graph/graph.h"

namespace cleave::tools {

int64_t context_limit(const importer::Graph& graph, const std::filesystem::path& folder);

}  // namespace cleave::tools
