// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/gguf_texts.h"

#include <array>
#include <bit>
#include <set>
#include <vector>

#include <fmt/ranges.h>

#include "runtime/base/errors.h"
#include "runtime/base/protobuf_wire.h"
#include "runtime/text/json_view.h"

namespace cleave::runtime {
namespace {

using Json = nlohmann::json;

constexpr const char* kModel = "tokenizer.ggml.model";
constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kTypes = "tokenizer.ggml.token_type";

// Types of tokens, which SentencePiece numbers alike (sentencepiece_model.proto).
constexpr int kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4;

// How a text is cut before its pieces are merged.
constexpr const char* kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct PreTokenizerKind {
    const char* name;
    const char* pattern;
    bool single_digits;  // cut off first
    bool whole_words;    // a piece that is a token is not merged
    bool begins;         // a text begins with bos unless the file says otherwise
};
constexpr std::array kKinds{PreTokenizerKind{"gpt-2", kGpt2, false, false, false},
                            PreTokenizerKind{"olmo", kGpt2, false, false, false},
                            PreTokenizerKind{"smollm", kGpt2, true, false, false},
                            PreTokenizerKind{"refact", kGpt2, true, false, false},
                            PreTokenizerKind{"starcoder", kGpt2, true, false, false},
                            PreTokenizerKind{"llama-bpe", kLlama3, false, true, true},
                            PreTokenizerKind{"llama3", kLlama3, false, true, true},
                            PreTokenizerKind{"llama-v3", kLlama3, false, true, true},
                            PreTokenizerKind{"dbrx", kLlama3, false, false, false},
                            PreTokenizerKind{"smaug-bpe", kLlama3, false, false, false},
                            PreTokenizerKind{"qwen2", kQwen2, false, false, false},
                            PreTokenizerKind{"deepseek-r1-qwen", kQwen2, false, false, false}};

class Texts {
public:
    explicit Texts(const GgufFile& file) : file_(file), root_(file.metadata, file.path, "") {}

    bool has_tokenizer() const { return root_.has(kModel); }
    bool is(const char* model) const { return root_.at(kModel).as_string() == model; }
    void check_supported() const {
        if (!is("gpt2") && !is("llama"))
            root_.at(kModel).fail(
                fmt::format("tokenizers of type \"{}\" are not supported "
                            "(supported: gpt2, llama); give one with $tokenizer",
                            root_.at(kModel).as_string()));
    }
    bool begins_with_bos() const {
        return root_.bool_or("tokenizer.ggml.add_bos_token", is("llama") || kind().begins);
    }

    Json tokenizer_json() const {
        const JsonView tokens = root_.at(kTokens);
        Json vocabulary = Json::object(), added = Json::array();
        for (size_t id = 0; id < tokens.size(); ++id) {
            const std::string& text = tokens.at(id).as_string();
            const int type = type_of(id);
            if (type == kControl || type == kUserDefined || type == kUnknown)
                added.push_back({{"id", id},
                                 {"content", text},
                                 {"special", type != kUserDefined},
                                 {"normalized", false}});
            else if (!vocabulary.emplace(text, id).second)
                tokens.at(id).fail("the token '" + text + "' is there twice");
        }
        const PreTokenizerKind& how = kind();
        Json cuts = Json::array();
        if (how.single_digits) cuts.push_back({{"type", "Digits"}, {"individual_digits", true}});
        cuts.push_back({{"type", "Split"},
                        {"pattern", {{"Regex", how.pattern}}},
                        {"behavior", "Isolated"},
                        {"invert", false}});
        cuts.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
        return {{"added_tokens", std::move(added)},
                {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", std::move(cuts)}}},
                {"decoder", {{"type", "ByteLevel"}}},
                {"model",
                 {{"type", "BPE"},
                  {"ignore_merges", how.whole_words},
                  {"vocab", std::move(vocabulary)},
                  {"merges", root_.at("tokenizer.ggml.merges").raw()}}}};
    }

    Json tokenizer_config() const {
        Json config = Json::object();
        for (const auto& [name, key] :
             {std::pair{"bos_token", "bos"}, std::pair{"eos_token", "eos"},
              std::pair{"unk_token", "unknown"}, std::pair{"pad_token", "padding"}})
            if (const auto id = special_id(key))
                config[name] = root_.at(kTokens).at(*id).as_string();
        if (has_tokenizer()) {
            config["add_bos_token"] = begins_with_bos();
            config["add_eos_token"] = root_.bool_or("tokenizer.ggml.add_eos_token", false);
        }
        if (root_.has("tokenizer.chat_template"))
            config["chat_template"] = root_.at("tokenizer.chat_template").as_string();
        return config;
    }

    // A turn, and a message, end as a text does.
    Json generation_config() const {
        Json config = Json::object(), ends = Json::array();
        std::set<size_t> known;
        for (const char* key : {"eos", "eot", "eom"})
            if (const auto id = special_id(key); id && known.insert(*id).second)
                ends.push_back(*id);
        if (!ends.empty()) config["eos_token_id"] = ends;
        if (const auto id = special_id("bos")) config["bos_token_id"] = *id;
        if (const auto id = special_id("padding")) config["pad_token_id"] = *id;
        return config;
    }

    std::string sentencepiece() const;

private:
    const PreTokenizerKind& kind() const {
        const std::string name = root_.at("tokenizer.ggml.pre").as_string();
        std::vector<const char*> known;
        for (const PreTokenizerKind& k : kKinds) {
            if (name == k.name) return k;
            known.push_back(k.name);
        }
        root_.at("tokenizer.ggml.pre")
            .fail(fmt::format("\"{}\" is not supported (supported: {}); give the model's "
                              "tokenizer.json with $tokenizer",
                              name, fmt::join(known, ", ")));
    }
    int type_of(size_t id) const {
        if (!root_.has(kTypes)) return kNormal;
        return static_cast<int>(root_.at(kTypes).at(id).as_integer());
    }
    std::optional<size_t> special_id(const std::string& name) const {
        const std::string key = "tokenizer.ggml." + name + "_token_id";
        if (!root_.has(key.c_str())) return std::nullopt;
        const JsonView json = root_.at(key.c_str());
        const int64_t id = json.as_integer();
        if (id < 0 || !root_.has(kTokens) || id >= std::ssize(root_.at(kTokens).raw()))
            json.fail("no token has this id");
        return static_cast<size_t>(id);
    }

    const GgufFile& file_;
    JsonView root_;
};

// A Protobuf message, written.
class Message {
public:
    void number(uint64_t field, uint64_t value) {
        append_varint(bytes, field << 3);
        append_varint(bytes, value);
    }
    void real(uint64_t field, float value) {
        append_varint(bytes, field << 3 | 5);
        const auto bits = std::bit_cast<uint32_t>(value);
        for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(bits >> (8 * i)));
    }
    void text(uint64_t field, std::string_view value) { append_bytes(bytes, field, value); }

    std::string bytes;
};

// Fields by sentencepiece_model.proto.
std::string Texts::sentencepiece() const {
    const JsonView tokens = root_.at(kTokens), scores = root_.at("tokenizer.ggml.scores");
    if (scores.size() != tokens.size() || root_.at(kTypes).size() != tokens.size())
        scores.fail("there is not one score and one type for each token");
    Message model;
    for (size_t id = 0; id < tokens.size(); ++id) {
        Message piece;
        piece.text(1, tokens.at(id).as_string());
        const JsonView score = scores.at(id);
        if (!score.raw().is_number()) score.fail("expected a number");
        piece.real(2, score.raw().get<float>());
        piece.number(3, static_cast<uint64_t>(type_of(id)));
        model.text(1, piece.bytes);
    }
    Message trainer;
    trainer.number(3, 2);  // BPE
    trainer.number(4, tokens.size());
    trainer.number(35, 1);  // bytes of characters without a piece
    for (const auto& [field, name] :
         {std::pair{40U, "unknown"}, std::pair{41U, "bos"}, std::pair{42U, "eos"}})
        if (const auto id = special_id(name)) trainer.number(field, *id);
    Message normalizer;
    normalizer.text(1, "identity");
    normalizer.number(3, root_.bool_or("tokenizer.ggml.add_space_prefix", true) ? 1 : 0);
    normalizer.number(4, 0);  // runs of spaces stay
    normalizer.number(5, 1);  // spaces become U+2581
    model.text(2, trainer.bytes);
    model.text(3, normalizer.bytes);
    return std::move(model.bytes);
}

}  // namespace

std::optional<Json> gguf_document(const GgufFile& file, std::string_view name) {
    const Texts texts(file);
    if (name == "generation_config.json") return texts.generation_config();
    if (name == "tokenizer_config.json") return texts.tokenizer_config();
    if (name != "tokenizer.json" || !texts.has_tokenizer()) return std::nullopt;
    texts.check_supported();
    return texts.is("gpt2") ? std::optional(texts.tokenizer_json()) : std::nullopt;
}

std::optional<std::string> gguf_sentencepiece_model(const GgufFile& file) {
    const Texts texts(file);
    if (!texts.has_tokenizer() || !texts.is("llama")) return std::nullopt;
    return texts.sentencepiece();
}

}  // namespace cleave::runtime
