// SPDX-License-Identifier: Apache-2.0
// A table (`precompiled_charsmap`, sentencepiece_model.proto) is the size of a trie in bytes, the
// trie, and the texts that its values are places in. The trie is one of Darts-clone
// (https://github.com/s-yata/darts-clone): an array of 32-bit units. A transition by byte c from
// the node at p leads to the unit at p ^ c, whose label is then c; its offset leads to the next
// node, where a value lies when the unit says so.
#include "runtime/text/sentencepiece_check.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/base/errors.h"
#include "runtime/base/protobuf_wire.h"

namespace cleave::runtime {

namespace {

constexpr size_t kNodeUnits = 256;
// The largest table that comes with the library has 250 kB.
constexpr size_t kMostTableBytes = size_t{4} << 20;
// That the library has room for (Normalizer::kMaxTrieResultsSize).
constexpr int kMostPrefixes = 32;

uint32_t little_endian(std::string_view bytes) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i)
        value |= uint32_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    return value;
}

class Trie {
public:
    Trie(std::string_view bytes, size_t num_texts)
        : units_(bytes.size() / 4), states_(units_.size(), kNew), num_texts_(num_texts) {
        for (size_t i = 0; i < units_.size(); ++i) units_[i] = little_endian(bytes.substr(4 * i));
    }

    // Whether every text leads to units and texts that are there, and passes no more values than
    // the library has room for. Nodes may have several parents.
    bool is_sound() {
        std::vector<Visit> path;
        if (!enter(next(0), path)) return false;
        while (!path.empty()) {
            Visit& visit = path.back();
            if (visit.byte == kNodeUnits) {
                states_[visit.node] = visit.prefixes;
                path.pop_back();
                continue;
            }
            const size_t at = visit.node ^ visit.byte;
            if ((units_[at] & kLabelBits) != visit.byte) {
                ++visit.byte;
                continue;
            }
            const size_t child = next(at);
            if (child >= states_.size()) return false;
            if (states_[child] == kNew) {
                if (!enter(child, path)) return false;
                continue;  // and the same byte again
            }
            if (states_[child] == kOnPath) return false;  // a text of any length goes on
            const bool has_value = (units_[at] & kValueBit) != 0;
            if (has_value && (units_[child] & ~kIsValue) >= num_texts_) return false;
            visit.prefixes = std::max(visit.prefixes, states_[child] + (has_value ? 1 : 0));
            if (visit.prefixes > kMostPrefixes) return false;
            ++visit.byte;
        }
        return true;
    }

private:
    static constexpr uint32_t kIsValue = uint32_t{1} << 31, kLabelBits = kIsValue | 255;
    static constexpr uint32_t kValueBit = 1 << 8, kFarBit = 1 << 9;
    static constexpr int kNew = -1, kOnPath = -2;

    struct Visit {
        size_t node;
        size_t byte;   // that is tried
        int prefixes;  // the most values behind it so far
    };

    // The node that the unit leads to.
    size_t next(size_t at) const {
        const uint32_t unit = units_[at];
        return at ^ (size_t{unit >> 10} << ((unit & kFarBit) != 0 ? 8 : 0));
    }

    bool enter(size_t node, std::vector<Visit>& path) {
        if ((node | (kNodeUnits - 1)) >= units_.size()) return false;
        states_[node] = kOnPath;
        path.push_back({node, 0, 0});
        return true;
    }

    std::vector<uint32_t> units_;
    std::vector<int> states_;  // by node: kNew, kOnPath, or its most values
    size_t num_texts_;         // bytes
};

bool is_sound_table(std::string_view table) {
    if (table.empty()) return true;  // nothing is normalised
    if (table.size() < 4 || table.size() > kMostTableBytes) return false;
    const size_t size = little_endian(table);
    table.remove_prefix(4);
    if (size == 0 || size % (4 * kNodeUnits) != 0 || size >= table.size()) return false;
    return Trie(table.substr(0, size), table.size() - size).is_sound();
}

// Calls `visit` with each field of the message; whether all of it are fields.
template <class Visit>
bool each_field(std::string_view message, const Visit& visit) {
    while (!message.empty()) {
        const std::optional<WireField> field = take_field(message);
        if (!field || !visit(*field)) return false;
    }
    return true;
}

}  // namespace

void check_sentencepiece_model(std::string_view model, const std::string& file) {
    constexpr uint64_t kNormalizer = 3, kDenormalizer = 5, kTable = 2;
    bool sound = true;
    const auto table = [&](const WireField& field) {
        if (field.number == kTable && field.type == 2)
            sound = sound && is_sound_table(field.content);
        return true;
    };
    const bool is_message = each_field(model, [&](const WireField& field) {
        const bool normalizes = field.number == kNormalizer || field.number == kDenormalizer;
        return field.type != 2 || !normalizes || each_field(field.content, table);
    });
    if (is_message && sound) return;
    throw UserError(
        "{}: is not a SentencePiece model: {}; supported are *.model files written by the "
        "sentencepiece trainer",
        file,
        is_message ? "the table of its normaliser (precompiled_charsmap) is broken"
                   : "it is no Protobuf message");
}

}  // namespace cleave::runtime
