// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/context_limit.h"

#include <nlohmann/json.hpp>

#include "runtime/base/json_file.h"
#include "runtime/base/path_state.h"

namespace cleave::tools {
namespace {

namespace fs = std::filesystem;

// The context limit that the files beside an .onnx file state, 0 when none does.
int64_t stated_max_positions(const fs::path& folder) {
    auto read = [&](const char* name) {
        return is_there(folder / name) ? read_json(folder / name) : nlohmann::json();
    };
    nlohmann::json config = read("config.json");
    if (config.is_object() &&
        config.value("max_position_embeddings", nlohmann::json()).is_number_integer())
        return config["max_position_embeddings"].get<int64_t>();
    nlohmann::json genai = read("genai_config.json");
    if (genai.is_object() && genai.contains("model") && genai["model"].is_object() &&
        genai["model"].value("context_length", nlohmann::json()).is_number_integer())
        return genai["model"]["context_length"].get<int64_t>();
    return 0;
}

}  // namespace

int64_t context_limit(const importer::Graph& graph, const fs::path& folder) {
    return graph.config.max_positions > 0 ? graph.config.max_positions
                                          : stated_max_positions(folder.empty() ? "." : folder);
}

}  // namespace cleave::tools
