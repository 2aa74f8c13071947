// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/generation_config.h"

#include <algorithm>

#include "runtime/text/companions.h"

namespace cleave::runtime {

namespace fs = std::filesystem;

namespace {

// An id or a list of ids. Some files write a negative number for "none".
std::vector<int32_t> read_ids(const JsonView& json) {
    std::vector<int32_t> ids;
    const auto add = [&](const JsonView& id) {
        if (id.as_integer() < 0) return;
        const int32_t value = id.as_token_id();
        if (std::find(ids.begin(), ids.end(), value) == ids.end()) ids.push_back(value);
    };
    if (!json.raw().is_array()) {
        add(json);
        return ids;
    }
    for (size_t i = 0; i < json.size(); ++i) add(json.at(i));
    return ids;
}

void read_first(const JsonView& json, const char* key, std::optional<int32_t>& id) {
    if (id || !json.has(key)) return;
    const std::vector<int32_t> ids = read_ids(json.at(key));
    if (!ids.empty()) id = ids.front();
}

void read_fields(const JsonView& json, const fs::path& path, GenerationConfig& config) {
    if (config.eos_ids.empty() && json.has("eos_token_id")) {
        config.eos_ids = read_ids(json.at("eos_token_id"));
        if (!config.eos_ids.empty()) config.eos_source = path.string();
    }
    read_first(json, "bos_token_id", config.bos_id);
    read_first(json, "pad_token_id", config.pad_id);
}

}  // namespace

GenerationConfig load_generation_config(const fs::path& model) {
    const fs::path place = place_of_companions(model);
    struct Source {
        const char* file;
        const char* inside;  // the object that holds the fields; null: the root
    };
    constexpr Source kSources[] = {{"generation_config.json", nullptr},
                                   {"genai_config.json", "model"},
                                   {"config.json", nullptr},
                                   {"config.json", "text_config"}};
    GenerationConfig config;
    for (const Source& source : kSources) {
        const auto file = find_companion(place, source.file);
        if (!file) continue;
        const JsonView root = file->root();
        if (!root.raw().is_object()) root.fail("expected an object");
        if (source.inside == nullptr)
            read_fields(root, root.where(), config);
        else if (root.has(source.inside))
            read_fields(root.at(source.inside), root.where(), config);
    }
    return config;
}

std::vector<int32_t> stop_ids(const GenerationConfig& config, const Tokenizer* tokenizer) {
    if (!config.eos_ids.empty()) return config.eos_ids;
    if (tokenizer && tokenizer->eos_id()) return {*tokenizer->eos_id()};
    return {};
}

}  // namespace cleave::runtime
