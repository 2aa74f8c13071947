// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer.h"

#include <utility>

#include "runtime/base/errors.h"
#include "runtime/base/gguf.h"
#include "runtime/base/json_file.h"
#include "runtime/base/path_state.h"
#include "runtime/text/bpe_tokenizer.h"
#include "runtime/text/companions.h"
#include "runtime/text/gguf_texts.h"
#include "runtime/text/sentencepiece_tokenizer.h"
#include "runtime/text/utf8.h"

namespace cleave::runtime {

namespace fs = std::filesystem;

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
    DecodeState state = begin_decode();
    std::string bytes;
    for (const int32_t id : ids) append_token(id, skip_special, state, bytes);
    return replace_invalid_utf8(bytes);
}

const std::string& Tokenizer::token_text(int32_t id) const {
    if (id < 0 || id >= vocab_size()) {
        throw UserError("token id {} is outside the tokenizer's vocabulary of {}", id,
                        vocab_size());
    }
    return vocabulary_.texts()[static_cast<size_t>(id)];
}

std::optional<int32_t> Tokenizer::token_id(std::string_view token_text) const {
    return vocabulary_.find(token_text);
}

bool Tokenizer::is_special(int32_t id) const {
    return id >= 0 && id < vocab_size() && special_[static_cast<size_t>(id)];
}

void Tokenizer::append_token(int32_t id, bool skip_special, DecodeState& state,
                             std::string& out) const {
    if (id < 0 || id >= vocab_size() || (skip_special && is_special(id))) return;
    const auto index = static_cast<size_t>(id);
    const bool first = std::exchange(state.first_token, false);
    const std::string first_bytes =
        first ? decoder_.bytes_of(vocabulary_.texts()[index], true) : std::string();
    std::string_view bytes = first ? first_bytes : bytes_[index];
    while (state.strip_left > 0 && !bytes.empty()) {
        if (!bytes.starts_with(decoder_.strip_char)) {
            state.strip_left = 0;
            break;
        }
        bytes.remove_prefix(decoder_.strip_char.size());
        --state.strip_left;
    }
    out.append(bytes);
}

void Tokenizer::finish_tables() {
    vocabulary_.index();
    special_.resize(vocabulary_.texts().size());
    bytes_.clear();
    bytes_.reserve(vocabulary_.texts().size());
    for (const std::string& text : vocabulary_.texts()) {
        bytes_.push_back(decoder_.bytes_of(text, false));
    }
}

namespace {

std::unique_ptr<Tokenizer> load_gguf_tokenizer(const fs::path& file) {
    const TokenizerConfig config = load_tokenizer_config(file);
    if (const auto model = gguf_sentencepiece_model(read_gguf(file.string())))
        return load_sentencepiece_tokenizer(*model, file.string(), config);
    const auto document = find_companion(file, "tokenizer.json");
    if (!document)
        throw UserError(
            "{}: the GGUF file has no tokenizer; give one with $tokenizer, or give "
            "token ids with $input_ids",
            file.string());
    return load_bpe_tokenizer(document->root(), config);
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& path) {
    fs::path file = path;
    if (is_folder(path)) {
        file = path / "tokenizer.json";
        if (!is_there(file)) file = path / "tokenizer.model";
        if (!is_there(file)) {
            throw UserError(
                "{}: holds neither tokenizer.json nor tokenizer.model; give one with "
                "$tokenizer, or give token ids with $input_ids",
                path.string());
        }
    } else if (!is_there(path)) {
        throw UserError(
            "{}: no such file; a tokenizer is a tokenizer.json (Hugging Face), a "
            "tokenizer.model (SentencePiece) or a folder that holds one",
            path.string());
    }
    if (is_gguf(file.string())) return load_gguf_tokenizer(file);
    if (file.extension() == ".model")
        return load_sentencepiece_tokenizer(read_regular_file(file), file.string(),
                                            load_tokenizer_config(file.parent_path()));
    if (file.extension() == ".json") {
        const JsonFile json(file);
        return load_bpe_tokenizer(json.root(), load_tokenizer_config(file.parent_path()));
    }
    throw UserError(
        "{}: not a tokenizer by its name; supported are *.json (Hugging Face, BPE), "
        "*.model (SentencePiece) and GGUF files",
        path.string());
}

}  // namespace cleave::runtime
