// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer_config.h"

#include <algorithm>
#include <charconv>

#include "runtime/text/companions.h"

namespace cleave::runtime {

namespace fs = std::filesystem;

namespace {

constexpr const char* kSpecialNames[] = {"bos_token", "eos_token",  "unk_token", "pad_token",
                                         "sep_token", "mask_token", "cls_token"};

// A token is written as its text or as an object with "content".
std::string token_content(const JsonView& json) {
    return json.raw().is_object() ? json.at("content").as_string() : json.as_string();
}

void read_special_tokens(const JsonView& root, TokenizerConfig& config) {
    for (const char* name : kSpecialNames) {
        if (root.has(name)) config.special_tokens.emplace(name, token_content(root.at(name)));
    }
}

int32_t parse_id(const JsonView& json, const std::string& key) {
    int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0) {
        json.fail("expected token ids as keys, found '" + key + "'");
    }
    return id;
}

void read_tokenizer_config(const JsonView& root, TokenizerConfig& config) {
    read_special_tokens(root, config);
    if (root.has("add_bos_token")) config.add_bos_token = root.at("add_bos_token").as_bool();
    if (root.has("add_eos_token")) config.add_eos_token = root.at("add_eos_token").as_bool();
    if (!root.has("added_tokens_decoder")) return;
    const JsonView added = root.at("added_tokens_decoder");
    if (!added.raw().is_object()) added.fail("expected an object");
    for (const auto& [key, value] : added.raw().items()) {
        config.added_tokens.push_back(
            read_added_token(added.at(key.c_str()), parse_id(added, key)));
    }
}

// added_tokens.json: {"<token>": id}.
void read_added_tokens_file(const JsonView& root, TokenizerConfig& config) {
    if (!root.raw().is_object()) root.fail("expected an object");
    for (const auto& [text, value] : root.raw().items()) {
        const int32_t id = root.at(text.c_str()).as_token_id();
        const auto same = [id = id](const AddedToken& token) { return token.id == id; };
        if (std::none_of(config.added_tokens.begin(), config.added_tokens.end(), same)) {
            config.added_tokens.push_back({id, text, true, false, false, false, false});
        }
    }
}

}  // namespace

std::optional<std::string> TokenizerConfig::special(const char* name) const {
    const auto it = special_tokens.find(name);
    if (it == special_tokens.end()) return std::nullopt;
    return it->second;
}

AddedToken read_added_token(const JsonView& json, int32_t id) {
    AddedToken token;
    token.id = id;
    token.text = json.at("content").as_string();
    token.special = json.bool_or("special", false);
    token.normalized = json.bool_or("normalized", !token.special);
    token.single_word = json.bool_or("single_word", false);
    token.lstrip = json.bool_or("lstrip", false);
    token.rstrip = json.bool_or("rstrip", false);
    return token;
}

TokenizerConfig load_tokenizer_config(const fs::path& model) {
    TokenizerConfig config;
    const auto read = [&](const char* name, void (*reader)(const JsonView&, TokenizerConfig&)) {
        if (const auto file = find_companion(model, name)) reader(file->root(), config);
    };
    read("tokenizer_config.json", read_tokenizer_config);
    read("special_tokens_map.json", read_special_tokens);
    read("added_tokens.json", read_added_tokens_file);
    std::sort(config.added_tokens.begin(), config.added_tokens.end(),
              [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
    return config;
}

}  // namespace cleave::runtime
