// SPDX-License-Identifier: Apache-2.0
// A Hugging Face tokenizer.json with a BPE model: added tokens, normaliser, pre-tokenizer, merges,
// post-processor, decoder, in that order. tokenizer_json.cpp reads the parts; this runs them.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "runtime/text/added_tokens.h"
#include "runtime/text/bpe_model.h"
#include "runtime/text/normalizer.h"
#include "runtime/text/pre_tokenizer.h"
#include "runtime/text/tokenizer.h"
#include "runtime/text/tokenizer_config.h"

namespace cleave::runtime {

// The parts of a tokenizer.json, read and checked.
struct TokenizerParts {
    Vocabulary vocabulary;         // with the added tokens; not yet indexed
    std::vector<BpeMerge> merges;  // by rank
    BpeOptions options;
    std::vector<AddedToken> added_tokens;
    Normalizer normalizer;
    PreTokenizer pre_tokenizer;
    bool byte_level = false;  // the pre-tokenizer writes bytes as GPT-2 does
    TokenDecoder decoder;
    std::vector<int32_t> prefix;  // ids before and after a text
    std::vector<int32_t> suffix;
    std::optional<int32_t> bos_id;
    std::optional<int32_t> eos_id;
};

// Reads a tokenizer.json. Throws UserError.
TokenizerParts read_tokenizer_json(const JsonView& root, const TokenizerConfig& config);

class BpeTokenizer final : public Tokenizer {
public:
    explicit BpeTokenizer(TokenizerParts parts);

    std::vector<int32_t> encode(std::string_view text, bool add_special = true) const override;

private:
    struct PieceCache;

    void encode_text(std::string_view text, bool at_start, PieceCache& cache,
                     std::vector<int32_t>& ids) const;
    void encode_valid(std::string_view text, bool at_start, PieceCache& cache,
                      std::vector<int32_t>& ids) const;
    void encode_normalized(std::string_view text, bool at_start, PieceCache& cache,
                           std::vector<int32_t>& ids) const;
    void encode_invalid_byte(unsigned char byte, std::vector<int32_t>& ids) const;

    std::unique_ptr<BpeModel> model_;
    AddedTokenMatcher raw_tokens_;         // looked for in the text as given
    AddedTokenMatcher normalized_tokens_;  // looked for after the normaliser
    Normalizer normalizer_;
    PreTokenizer pre_tokenizer_;
    bool byte_level_ = false;
    std::optional<int32_t> unk_id_;
    std::vector<int32_t> prefix_;
    std::vector<int32_t> suffix_;
};

std::unique_ptr<Tokenizer> load_bpe_tokenizer(const JsonView& root, const TokenizerConfig& config);

}  // namespace cleave::runtime
