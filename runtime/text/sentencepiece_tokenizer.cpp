// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <utility>

#include "runtime/base/errors.h"
#include "runtime/text/added_tokens.h"
#include "runtime/text/json_view.h"
#include "runtime/text/tokenizer_config.h"

namespace cleave::runtime {

namespace {

constexpr const char* kMark = "\xE2\x96\x81";       // U+2581, SentencePiece's space
constexpr const char* kUnknown = " \xE2\x81\x87 ";  // U+2047, what it decodes an unknown token to

class SentencePieceTokenizer final : public Tokenizer {
public:
    SentencePieceTokenizer(const std::filesystem::path& path, const TokenizerConfig& config)
        : file_(path.string()) {
        load(read_text_file(path));
        read_pieces();
        read_added_tokens(config);
        read_special_ids(config);
        read_decoder();
        finish_tables();
    }

    std::vector<int32_t> encode(std::string_view text, bool add_special) const override {
        std::vector<int32_t> ids;
        if (add_special && add_bos_ && bos_id_) ids.push_back(*bos_id_);
        for (const TextSegment& segment : added_.split(text)) {
            if (segment.id) {
                ids.push_back(*segment.id);
                continue;
            }
            const TextRange range = segment.range;
            std::vector<int> part;
            const auto status =
                processor_.Encode(text.substr(range.begin, range.end - range.begin), &part);
            if (!status.ok()) throw UserError("{}: encoding failed: {}", file_, status.ToString());
            ids.insert(ids.end(), part.begin(), part.end());
        }
        if (add_special && add_eos_ && eos_id_) ids.push_back(*eos_id_);
        return ids;
    }

private:
    void load(const std::string& model) {
        // The library takes an empty message for a model, and then stops the process.
        const auto status =
            model.empty() ? sentencepiece::util::Status(
                                sentencepiece::util::StatusCode::kDataLoss, "the file is empty")
                          : processor_.LoadFromSerializedProto(model);
        if (!status.ok()) {
            throw UserError("{}: is not a SentencePiece model: {}; supported are *.model files "
                            "written by the sentencepiece trainer",
                            file_, status.ToString());
        }
    }

    void read_pieces() {
        const int size = processor_.GetPieceSize();
        for (int id = 0; id < size; ++id) {
            std::string piece = processor_.IdToPiece(id);
            const bool special = processor_.IsControl(id);
            special_.push_back(special);
            if (special) added_.add({id, piece, true, false, false, false, false});
            vocabulary_.set(id, std::move(piece));
        }
    }

    void read_added_tokens(const TokenizerConfig& config) {
        for (const AddedToken& token : config.added_tokens) {
            const auto index = static_cast<size_t>(token.id);
            if (index < static_cast<size_t>(processor_.GetPieceSize())) {
                // Models name unused pieces anew ("<pad>" over "<unused1>"): the text follows.
                if (vocabulary_.texts()[index] == token.text) continue;
            }
            vocabulary_.set(token.id, token.text);
            special_.resize(vocabulary_.texts().size());
            special_[index] = token.special;
            added_.add(token);
        }
        vocabulary_.index();
    }

    void read_special_ids(const TokenizerConfig& config) {
        const auto id_of = [&](const char* name, int model_id) -> std::optional<int32_t> {
            if (const auto text = config.special(name)) return vocabulary_.find(*text);
            if (model_id >= 0) return model_id;
            return std::nullopt;
        };
        bos_id_ = id_of("bos_token", processor_.bos_id());
        eos_id_ = id_of("eos_token", processor_.eos_id());
        add_bos_ = config.add_bos_token.value_or(true);
        add_eos_ = config.add_eos_token.value_or(false);
    }

    void read_decoder() {
        decoder_.steps.push_back([unknown = unknown_text()](std::string& token) {
            if (token == unknown) {
                token = kUnknown;
                return;
            }
            const int byte = byte_of_token(token);
            if (byte >= 0) {
                token.assign(1, static_cast<char>(byte));
            } else {
                replace_all(token, kMark, " ");
            }
        });
        // Whether the library drops the first space depends on the model's normaliser settings,
        // which its interface does not show: ask it.
        std::string probe;
        const std::vector<std::string> marked = {std::string(kMark) + "a"};
        if (processor_.Decode(marked, &probe).ok() && probe == "a") {
            decoder_.strip_char = " ";
            decoder_.strip_count = 1;
        }
    }

    std::string unknown_text() const {
        const int id = processor_.unk_id();
        return id < 0 ? std::string() : processor_.IdToPiece(id);
    }

    std::string file_;
    sentencepiece::SentencePieceProcessor processor_;
    AddedTokenMatcher added_;
    bool add_bos_ = true;
    bool add_eos_ = false;
};

}  // namespace

std::unique_ptr<Tokenizer> load_sentencepiece_tokenizer(const std::filesystem::path& path) {
    return std::make_unique<SentencePieceTokenizer>(path,
                                                    load_tokenizer_config(path.parent_path()));
}

}  // namespace cleave::runtime
