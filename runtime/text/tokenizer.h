// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back.
// In: a Hugging Face tokenizer.json (BPE: byte-level or byte-fallback) or a SentencePiece
// tokenizer.model. Out: the ids that the library which wrote the file would give.
// encode() accepts any bytes: bytes that are no UTF-8 become the tokenizer's byte tokens where it
// has them. decode() always gives valid UTF-8; StreamDecoder gives the same text piece by piece.
// A Tokenizer is immutable: any number of threads may use one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/token_decoder.h"
#include "runtime/text/vocabulary.h"

namespace cleave::runtime {

// Where a decoder stands in its text: the beginning is special (a leading space may go).
struct DecodeState {
    bool first_token = true;
    size_t strip_left = 0;  // characters that may still be removed from the beginning
};

class Tokenizer {
public:
    virtual ~Tokenizer() = default;

    // `add_special`: put around the text what the file says a model expects, commonly the
    // begin-of-sequence token; false for text that carries it already, such as a rendered chat.
    // Special tokens written out in `text` ("<|eot_id|>") become their ids either way.
    virtual std::vector<int32_t> encode(std::string_view text, bool add_special = true) const = 0;

    // Valid UTF-8. Ids that have no token (the padding of an embedding table) add nothing;
    // `skip_special` leaves out tokens marked special ("<s>", "<|eot_id|>").
    std::string decode(std::span<const int32_t> ids, bool skip_special = true) const;

    // One more than the largest id that has a token.
    int32_t vocab_size() const { return static_cast<int32_t>(vocabulary_.texts().size()); }
    std::optional<int32_t> bos_id() const { return bos_id_; }
    std::optional<int32_t> eos_id() const { return eos_id_; }

    // The token as the file writes it ("Ġhello", "▁hello", "<0x0A>"); UserError when out of range.
    const std::string& token_text(int32_t id) const;
    std::optional<int32_t> token_id(std::string_view token_text) const;
    bool is_special(int32_t id) const;

    DecodeState begin_decode() const { return {true, decoder_.strip_count}; }
    // Appends the raw bytes of one token, which may be part of a character.
    void append_token(int32_t id, bool skip_special, DecodeState& state, std::string& out) const;

protected:
    // Call once the vocabulary, the decoder and the special tokens are set.
    void finish_tables();

    Vocabulary vocabulary_;
    TokenDecoder decoder_;
    std::vector<bool> special_;  // by id
    std::optional<int32_t> bos_id_;
    std::optional<int32_t> eos_id_;

private:
    std::vector<std::string> bytes_;  // by id: the token's bytes anywhere but at the beginning
};

// `path`: a tokenizer.json, a tokenizer.model, a folder that holds one (tokenizer.json first), or a
// GGUF file.
// tokenizer_config.json beside it says which tokens begin and end a text. Throws UserError.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);

}  // namespace cleave::runtime
