// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/bpe_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>
#include <utility>

#include "runtime/base/errors.h"
#include "runtime/text/utf8.h"

namespace cleave::runtime {

namespace {

uint64_t pair_key(int32_t left, int32_t right) {
    return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) |
           static_cast<uint32_t>(right);
}

}  // namespace

BpeModel::BpeModel(const Vocabulary& vocabulary, const std::vector<BpeMerge>& merges,
                   BpeOptions options)
    : vocabulary_(vocabulary), options_(options) {
    ranks_.reserve(merges.size());
    for (size_t rank = 0; rank < merges.size(); ++rank) {
        const BpeMerge& merge = merges[rank];
        ranks_.insert_or_assign(pair_key(merge.left, merge.right),
                                Rank{static_cast<int32_t>(rank), merge.merged});
    }
    if (!options_.byte_fallback) return;
    for (int byte = 0; byte < 256; ++byte) {
        byte_ids_[static_cast<size_t>(byte)] = vocabulary_.find(fmt::format("<0x{:02X}>", byte));
    }
}

const BpeModel::Rank* BpeModel::rank_of(int32_t left, int32_t right) const {
    const auto it = ranks_.find(pair_key(left, right));
    return it == ranks_.end() ? nullptr : &it->second;
}

std::vector<int32_t> BpeModel::to_symbols(std::string_view piece) const {
    std::vector<int32_t> ids;
    ids.reserve(piece.size());
    bool after_unknown = false;
    for (size_t at = 0; at < piece.size();) {
        const Utf8Char c = next_char(piece, at);
        const std::string_view text = piece.substr(at, c.size);
        at += c.size;
        const bool was_unknown = std::exchange(after_unknown, false);
        if (const auto id = vocabulary_.find(text)) {
            ids.push_back(*id);
            continue;
        }
        const auto has_token = [&](char byte) {
            return byte_ids_[static_cast<unsigned char>(byte)].has_value();
        };
        if (std::all_of(text.begin(), text.end(), has_token)) {
            for (const char byte : text)
                ids.push_back(*byte_ids_[static_cast<unsigned char>(byte)]);
            continue;
        }
        if (!options_.unk_id) {
            throw UserError(
                "the tokenizer has no token for the character U+{:04X} ('{}'), no "
                "byte fallback and no unknown token; leave the character out",
                static_cast<uint32_t>(c.code), text);
        }
        after_unknown = true;
        if (!(was_unknown && options_.fuse_unk)) ids.push_back(*options_.unk_id);
    }
    return ids;
}

void BpeModel::merge_all(std::vector<Symbol>& symbols) const {
    const auto later = [](const Candidate& a, const Candidate& b) {
        return std::pair(a.rank, a.position) > std::pair(b.rank, b.position);
    };
    std::vector<Candidate> storage;
    storage.reserve(symbols.size());
    std::priority_queue<Candidate, std::vector<Candidate>, decltype(later)> queue(
        later, std::move(storage));
    const auto propose = [&](int32_t position) {
        if (position < 0) return;
        const Symbol& left = symbols[static_cast<size_t>(position)];
        if (left.next < 0) return;
        const Rank* rank = rank_of(left.id, symbols[static_cast<size_t>(left.next)].id);
        if (rank != nullptr) queue.push({rank->rank, position, rank->merged});
    };
    for (size_t i = 0; i + 1 < symbols.size(); ++i) propose(static_cast<int32_t>(i));
    while (!queue.empty()) {
        const Candidate best = queue.top();
        queue.pop();
        Symbol& left = symbols[static_cast<size_t>(best.position)];
        if (!left.alive || left.next < 0) continue;
        Symbol& right = symbols[static_cast<size_t>(left.next)];
        // The candidate is stale when either side merged with something else meanwhile.
        const Rank* rank = rank_of(left.id, right.id);
        if (rank == nullptr || rank->merged != best.merged) continue;
        left.id = best.merged;
        left.next = right.next;
        right.alive = false;
        if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = best.position;
        propose(left.previous);
        propose(best.position);
    }
}

void BpeModel::encode(std::string_view piece, std::vector<int32_t>& ids) const {
    if (piece.empty()) return;
    if (options_.ignore_merges) {
        if (const auto whole = vocabulary_.find(piece)) {
            ids.push_back(*whole);
            return;
        }
    }
    const std::vector<int32_t> start = to_symbols(piece);
    std::vector<Symbol> symbols;
    symbols.reserve(start.size());
    for (size_t i = 0; i < start.size(); ++i) {
        const auto position = static_cast<int32_t>(i);
        const bool last = i + 1 == start.size();
        symbols.push_back({start[i], position - 1, last ? -1 : position + 1, true});
    }
    merge_all(symbols);
    for (const Symbol& symbol : symbols) {
        if (symbol.alive) ids.push_back(symbol.id);
    }
}

}  // namespace cleave::runtime
