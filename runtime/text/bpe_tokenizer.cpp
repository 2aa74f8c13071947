// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/bpe_tokenizer.h"

#include <string>
#include <unordered_map>
#include <utility>

#include "runtime/base/errors.h"
#include "runtime/text/byte_level.h"
#include "runtime/text/utf8.h"

namespace cleave::runtime {

// Words repeat: their ids are remembered within one call of encode().
struct BpeTokenizer::PieceCache {
    static constexpr size_t kMaxPieceBytes = 64;
    static constexpr size_t kMaxPieces = 1 << 16;
    std::unordered_map<std::string, std::vector<int32_t>> pieces;
};

BpeTokenizer::BpeTokenizer(TokenizerParts parts)
    : normalizer_(std::move(parts.normalizer)),
      pre_tokenizer_(std::move(parts.pre_tokenizer)),
      byte_level_(parts.byte_level),
      unk_id_(parts.options.unk_id),
      prefix_(std::move(parts.prefix)),
      suffix_(std::move(parts.suffix)) {
    vocabulary_ = std::move(parts.vocabulary);
    decoder_ = std::move(parts.decoder);
    bos_id_ = parts.bos_id;
    eos_id_ = parts.eos_id;
    special_.resize(vocabulary_.texts().size());
    for (AddedToken& token : parts.added_tokens) {
        special_[static_cast<size_t>(token.id)] = token.special;
        if (!token.normalized) {
            raw_tokens_.add(std::move(token));
            continue;
        }
        // Such a token is looked for, and decodes to, what the normaliser makes of it.
        vocabulary_.add_alias(token.text, token.id);
        normalizer_(token.text);
        vocabulary_.set(token.id, token.text);
        normalized_tokens_.add(std::move(token));
    }
    finish_tables();
    model_ = std::make_unique<BpeModel>(vocabulary_, parts.merges, parts.options);
}

std::vector<int32_t> BpeTokenizer::encode(std::string_view text, bool add_special) const {
    std::vector<int32_t> ids;
    if (add_special) ids = prefix_;
    PieceCache cache;
    for (const TextSegment& segment : raw_tokens_.split(text)) {
        if (segment.id) {
            ids.push_back(*segment.id);
            continue;
        }
        const TextRange range = segment.range;
        encode_text(text.substr(range.begin, range.end - range.begin), range.begin == 0, cache,
                    ids);
    }
    if (add_special) ids.insert(ids.end(), suffix_.begin(), suffix_.end());
    return ids;
}

void BpeTokenizer::encode_text(std::string_view text, bool at_start, PieceCache& cache,
                               std::vector<int32_t>& ids) const {
    while (!text.empty()) {
        const size_t good = valid_prefix(text);
        if (good > 0) encode_valid(text.substr(0, good), at_start, cache, ids);
        text.remove_prefix(good);
        at_start = false;
        if (text.empty()) break;
        const size_t bad = next_char(text, 0).size;
        for (const char byte : text.substr(0, bad)) {
            encode_invalid_byte(static_cast<unsigned char>(byte), ids);
        }
        text.remove_prefix(bad);
    }
}

void BpeTokenizer::encode_valid(std::string_view text, bool at_start, PieceCache& cache,
                                std::vector<int32_t>& ids) const {
    std::string normal(text);
    normalizer_(normal);
    for (const TextSegment& segment : normalized_tokens_.split(normal)) {
        if (segment.id) {
            ids.push_back(*segment.id);
            continue;
        }
        const TextRange range = segment.range;
        encode_normalized(std::string_view(normal).substr(range.begin, range.end - range.begin),
                          at_start && range.begin == 0, cache, ids);
    }
}

void BpeTokenizer::encode_normalized(std::string_view text, bool at_start, PieceCache& cache,
                                     std::vector<int32_t>& ids) const {
    std::vector<Piece> pieces;
    pieces.push_back({std::string(text), at_start});
    pre_tokenizer_(pieces);
    for (const Piece& piece : pieces) {
        const auto known = cache.pieces.find(piece.text);
        if (known != cache.pieces.end()) {
            ids.insert(ids.end(), known->second.begin(), known->second.end());
            continue;
        }
        const auto before = static_cast<std::ptrdiff_t>(ids.size());
        model_->encode(piece.text, ids);
        if (piece.text.size() > PieceCache::kMaxPieceBytes) continue;
        if (cache.pieces.size() >= PieceCache::kMaxPieces) continue;
        cache.pieces.emplace(piece.text, std::vector<int32_t>(ids.begin() + before, ids.end()));
    }
}

void BpeTokenizer::encode_invalid_byte(unsigned char byte, std::vector<int32_t>& ids) const {
    std::optional<int32_t> id =
        byte_level_ ? vocabulary_.find(byte_level_char(byte)) : model_->byte_id(byte);
    if (!id) id = unk_id_;
    if (!id) {
        throw UserError(
            "the text is not valid UTF-8 (byte 0x{:02X}) and the tokenizer has no token "
            "for that byte; give UTF-8 text",
            byte);
    }
    ids.push_back(*id);
}

std::unique_ptr<Tokenizer> load_bpe_tokenizer(const JsonView& root, const TokenizerConfig& config) {
    return std::make_unique<BpeTokenizer>(read_tokenizer_json(root, config));
}

}  // namespace cleave::runtime
