// SPDX-License-Identifier: Apache-2.0
#include <string_view>
#include <utility>

#include "runtime/text/bpe_tokenizer.h"
#include "runtime/text/tokenizer_config.h"

namespace cleave::runtime {

namespace {

constexpr uint64_t kPlainIds = 1'000'000;

void read_vocabulary(const JsonView& model, Vocabulary& vocabulary) {
    const JsonView vocab = model.at("vocab");
    if (!vocab.raw().is_object()) vocab.fail("expected an object of token texts and ids");
    for (const auto& entry : vocab.raw().get_ref<const nlohmann::json::object_t&>()) {
        // The path of a value is only spelled out for one that is wrong: there are 100,000 here.
        const nlohmann::json& id = entry.second;
        const bool plain = id.is_number_unsigned() && id.get<uint64_t>() < kPlainIds;
        const auto value = plain ? id.get<int32_t>() : vocab.at(entry.first.c_str()).as_token_id();
        vocabulary.set(value, entry.first);
    }
    vocabulary.index();
}

using TokenPair = std::pair<std::string_view, std::string_view>;

// "a b" or ["a", "b"]; nothing when it is neither.
std::optional<TokenPair> split_merge(const nlohmann::json& json) {
    if (json.is_array()) {
        if (json.size() != 2 || !json[0].is_string() || !json[1].is_string()) return std::nullopt;
        return TokenPair(json[0].get_ref<const std::string&>(),
                         json[1].get_ref<const std::string&>());
    }
    if (!json.is_string()) return std::nullopt;
    const std::string_view text = json.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
        return std::nullopt;
    }
    return TokenPair(text.substr(0, space), text.substr(space + 1));
}

std::vector<BpeMerge> read_merges(const JsonView& model, const Vocabulary& vocabulary) {
    const JsonView list = model.at("merges");
    std::vector<BpeMerge> merges;
    merges.reserve(list.size());
    std::string joined;
    for (const nlohmann::json& json : list.raw()) {
        const size_t i = merges.size();
        const auto pair = split_merge(json);
        if (!pair) {
            list.at(i).fail(
                "expected a merge of two tokens: \"a b\" with one space, or [\"a\", \"b\"]");
        }
        const auto id_of = [&](std::string_view text) {
            const auto id = vocabulary.find(text);
            if (!id) {
                list.at(i).fail("the token '" + std::string(text) +
                                "' of this merge is not in model.vocab");
            }
            return *id;
        };
        joined.assign(pair->first).append(pair->second);
        merges.push_back({id_of(pair->first), id_of(pair->second), id_of(joined)});
    }
    return merges;
}

BpeOptions read_options(const JsonView& model, const Vocabulary& vocabulary) {
    const auto refuse = [&](const char* key) {
        model.at(key).fail("is not supported (supported: absent, null or empty)");
    };
    if (model.has("dropout") &&
        (!model.at("dropout").raw().is_number() || model.at("dropout").raw().get<double>() != 0)) {
        model.at("dropout").fail("random merges are for training; set it to null");
    }
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
        if (!model.string_or(key, "").empty()) refuse(key);
    }
    BpeOptions options;
    options.fuse_unk = model.bool_or("fuse_unk", false);
    options.byte_fallback = model.bool_or("byte_fallback", false);
    options.ignore_merges = model.bool_or("ignore_merges", false);
    if (model.has("unk_token")) {
        const JsonView unk = model.at("unk_token");
        options.unk_id = vocabulary.find(unk.as_string());
        if (!options.unk_id) unk.fail("the token '" + unk.as_string() + "' is not in model.vocab");
    }
    return options;
}

JsonView read_model(const JsonView& root) {
    const JsonView model = root.at("model");
    // Files of before 2021 have no type; only BPE has merges.
    const std::string type =
        model.string_or("type", model.has("merges") ? "BPE" : "without a type");
    if (type != "BPE") {
        model.fail("the model '" + type +
                   "' is not supported (supported: BPE); a SentencePiece "
                   "tokenizer.model of the same tokenizer is read as it is");
    }
    return model;
}

void read_added_tokens(const JsonView& root, TokenizerParts& parts) {
    if (!root.has("added_tokens")) return;
    const JsonView list = root.at("added_tokens");
    for (size_t i = 0; i < list.size(); ++i) {
        const JsonView json = list.at(i);
        parts.added_tokens.push_back(read_added_token(json, json.at("id").as_token_id()));
        parts.vocabulary.set(parts.added_tokens.back().id, parts.added_tokens.back().text);
    }
}

// A text goes through all steps of a part; real files have a handful.
constexpr size_t kMostSteps = 64;

void check_steps(const JsonView& json, const char* list_key, size_t& steps) {
    if (json.raw().is_null()) return;
    if (++steps > kMostSteps) json.fail(fmt::format("is more than {} steps", kMostSteps));
    if (json.type() != "Sequence") return;
    const JsonView list = json.at(list_key);
    for (size_t i = 0; i < list.size(); ++i) check_steps(list.at(i), list_key, steps);
}

// Whether a pre-tokenizer or post-processor contains a part of this type.
bool contains_type(const JsonView& json, const std::string& type, const char* list_key) {
    if (json.raw().is_null()) return false;
    if (json.type() != "Sequence") return json.type() == type;
    const JsonView list = json.at(list_key);
    for (size_t i = 0; i < list.size(); ++i) {
        if (contains_type(list.at(i), type, list_key)) return true;
    }
    return false;
}

constexpr size_t kMostTemplateTokens = 4096;

void read_template(const JsonView& json, TokenizerParts& parts) {
    const JsonView single = json.at("single");
    bool after_text = false;
    for (size_t i = 0; i < single.size(); ++i) {
        const JsonView part = single.at(i);
        if (part.has("Sequence")) {
            if (after_text) part.fail("a template with two texts is not supported for one text");
            after_text = true;
            continue;
        }
        const std::string& name = part.at("SpecialToken").at("id").as_string();
        const JsonView ids = json.at("special_tokens").at(name.c_str()).at("ids");
        for (size_t k = 0; k < ids.size(); ++k) {
            (after_text ? parts.suffix : parts.prefix).push_back(ids.at(k).as_token_id());
            if (parts.prefix.size() + parts.suffix.size() > kMostTemplateTokens)
                part.fail(fmt::format("a template of more than {} tokens", kMostTemplateTokens));
        }
    }
}

void read_post_processor(const JsonView& json, TokenizerParts& parts) {
    if (json.raw().is_null()) return;
    const std::string& type = json.type();
    if (type == "ByteLevel") return;  // adjusts offsets into the text, which are not kept here
    if (type == "TemplateProcessing") {
        read_template(json, parts);
    } else if (type == "Sequence") {
        const JsonView list = json.at("processors");
        for (size_t i = 0; i < list.size(); ++i) read_post_processor(list.at(i), parts);
    } else {
        json.fail("post-processor '" + type +
                  "' is not supported (supported: TemplateProcessing, ByteLevel, Sequence)");
    }
}

// tokenizer_config.json overrides the post-processor where it speaks of bos or eos, as in
// TokenizersBackend of Hugging Face transformers 5.
void apply_config(const TokenizerConfig& config, TokenizerParts& parts) {
    const auto id_of = [&](const char* name) -> std::optional<int32_t> {
        const auto text = config.special(name);
        return text ? parts.vocabulary.find(*text) : std::nullopt;
    };
    parts.bos_id = id_of("bos_token");
    parts.eos_id = id_of("eos_token");
    if (!parts.bos_id && !parts.prefix.empty()) parts.bos_id = parts.prefix.front();
    if (!config.add_bos_token && !config.add_eos_token) return;
    parts.prefix.clear();
    parts.suffix.clear();
    if (config.add_bos_token.value_or(false) && parts.bos_id) parts.prefix = {*parts.bos_id};
    if (config.add_eos_token.value_or(false) && parts.eos_id) parts.suffix = {*parts.eos_id};
}

JsonView part_or_null(const JsonView& root, const char* key) {
    static const nlohmann::json kNull;
    return root.has(key) ? root.at(key) : JsonView(kNull, root.where(), key);
}

}  // namespace

TokenizerParts read_tokenizer_json(const JsonView& root, const TokenizerConfig& config) {
    const JsonView model = read_model(root);
    TokenizerParts parts;
    read_vocabulary(model, parts.vocabulary);
    parts.merges = read_merges(model, parts.vocabulary);
    parts.options = read_options(model, parts.vocabulary);
    read_added_tokens(root, parts);
    parts.vocabulary.index();
    for (const auto& [part, list] :
         {std::pair("normalizer", "normalizers"), std::pair("pre_tokenizer", "pretokenizers"),
          std::pair("decoder", "decoders")}) {
        size_t steps = 0;
        check_steps(part_or_null(root, part), list, steps);
    }
    parts.normalizer = read_normalizer(part_or_null(root, "normalizer"));
    const JsonView pre_tokenizer = part_or_null(root, "pre_tokenizer");
    parts.pre_tokenizer = read_pre_tokenizer(pre_tokenizer);
    parts.byte_level = contains_type(pre_tokenizer, "ByteLevel", "pretokenizers");
    parts.decoder = read_token_decoder(part_or_null(root, "decoder"));
    read_post_processor(part_or_null(root, "post_processor"), parts);
    apply_config(config, parts);
    return parts;
}

}  // namespace cleave::runtime
