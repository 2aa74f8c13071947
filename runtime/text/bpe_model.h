// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding of one piece of text: the "model" of a tokenizer.json.
// In: a vocabulary, the merges in order of rank, and what to do with unknown characters. Out: ids.
// The merge of lowest rank goes first, the leftmost of equals; a heap makes it O(n log n).
// Immutable after construction; encode() may be called from several threads at once.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/text/vocabulary.h"

namespace cleave::runtime {

struct BpeMerge {
    int32_t left = 0;
    int32_t right = 0;
    int32_t merged = 0;
};

struct BpeOptions {
    std::optional<int32_t> unk_id;
    bool fuse_unk = false;       // neighbouring unknown characters become one unknown token
    bool byte_fallback = false;  // an unknown character becomes its bytes' tokens "<0x..>"
    bool ignore_merges = false;  // a piece that is a token as it stands is not taken apart
};

class BpeModel {
public:
    // `vocabulary` must outlive the model. Of a pair that merges twice, the later rank counts.
    BpeModel(const Vocabulary& vocabulary, const std::vector<BpeMerge>& merges, BpeOptions options);

    // Appends the ids of `piece` (valid UTF-8). UserError for a character that the vocabulary
    // cannot express.
    void encode(std::string_view piece, std::vector<int32_t>& ids) const;

    // The token of a byte that is part of no character, where the vocabulary has one.
    std::optional<int32_t> byte_id(unsigned char byte) const { return byte_ids_[byte]; }

private:
    struct Rank {
        int32_t rank;
        int32_t merged;
    };
    struct Symbol {
        int32_t id;
        int32_t previous;  // positions, -1 at the ends
        int32_t next;
        bool alive;
    };
    struct Candidate {
        int32_t rank;
        int32_t position;
        int32_t merged;
    };

    std::vector<int32_t> to_symbols(std::string_view piece) const;
    const Rank* rank_of(int32_t left, int32_t right) const;
    void merge_all(std::vector<Symbol>& symbols) const;

    const Vocabulary& vocabulary_;
    std::unordered_map<uint64_t, Rank> ranks_;
    BpeOptions options_;
    std::array<std::optional<int32_t>, 256> byte_ids_;
};

}  // namespace cleave::runtime
