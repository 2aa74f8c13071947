// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/sentencepiece_tokenizer.h"

#include <string>
#include <utility>

#include "runtime/base/errors.h"
#include "runtime/text/added_tokens.h"
#include "runtime/text/sentencepiece_check.h"
#include "runtime/text/sentencepiece_library.h"

namespace cleave::runtime {

namespace {

constexpr const char* kMark = "\xE2\x96\x81";       // U+2581, SentencePiece's space
constexpr const char* kUnknown = " \xE2\x81\x87 ";  // U+2047, what it decodes an unknown token to

// A model of libcleave_sentencepiece.
class Model {
public:
    Model(const SentencePieceLibrary& library, const std::string& bytes, const std::string& file)
        : library_(&library) {
        check_sentencepiece_model(bytes, file);
        char* error = nullptr;
        model_ = library.open(bytes.data(), bytes.size(), &error);
        if (!model_) {
            throw UserError(
                "{}: is not a SentencePiece model: {}; supported are *.model files "
                "written by the sentencepiece trainer",
                file, take(error));
        }
    }
    ~Model() { library_->close(model_); }
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;

    void encode(std::string_view text, std::vector<int32_t>& ids, const std::string& file) const {
        size_t count = 0;
        char* error = nullptr;
        int32_t* found = library_->encode(model_, text.data(), text.size(), &count, &error);
        if (!found) throw UserError("{}: encoding failed: {}", file, take(error));
        ids.insert(ids.end(), found, found + count);
        library_->free(found);
    }
    int32_t size() const { return library_->size(model_); }
    std::string piece(int32_t id) const {
        size_t length = 0;
        const char* text = library_->piece(model_, id, &length);
        return {text, length};
    }
    bool is_control(int32_t id) const { return library_->is_control(model_, id) != 0; }
    int32_t bos_id() const { return library_->bos_id(model_); }
    int32_t eos_id() const { return library_->eos_id(model_); }
    int32_t unk_id() const { return library_->unk_id(model_); }
    bool drops_first_space() const { return library_->drops_first_space(model_) != 0; }

private:
    std::string take(char* error) const {
        std::string text = error ? error : "out of memory";
        library_->free(error);
        return text;
    }

    const SentencePieceLibrary* library_;
    cleave_sentencepiece_model* model_ = nullptr;
};

class SentencePieceTokenizer final : public Tokenizer {
public:
    SentencePieceTokenizer(const std::string& model, std::string file,
                           const TokenizerConfig& config)
        : file_(std::move(file)), model_(sentencepiece_library(), model, file_) {
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
            model_.encode(text.substr(range.begin, range.end - range.begin), ids, file_);
        }
        if (add_special && add_eos_ && eos_id_) ids.push_back(*eos_id_);
        return ids;
    }

private:
    void read_pieces() {
        const int32_t size = model_.size();
        for (int32_t id = 0; id < size; ++id) {
            std::string piece = model_.piece(id);
            const bool special = model_.is_control(id);
            special_.push_back(special);
            if (special) added_.add({id, piece, true, false, false, false, false});
            vocabulary_.set(id, std::move(piece));
        }
    }

    void read_added_tokens(const TokenizerConfig& config) {
        for (const AddedToken& token : config.added_tokens) {
            const auto index = static_cast<size_t>(token.id);
            if (index < static_cast<size_t>(model_.size())) {
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
        const auto id_of = [&](const char* name, int32_t model_id) -> std::optional<int32_t> {
            if (const auto text = config.special(name)) return vocabulary_.find(*text);
            if (model_id >= 0) return model_id;
            return std::nullopt;
        };
        bos_id_ = id_of("bos_token", model_.bos_id());
        eos_id_ = id_of("eos_token", model_.eos_id());
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
        if (model_.drops_first_space()) {
            decoder_.strip_char = " ";
            decoder_.strip_count = 1;
        }
    }

    std::string unknown_text() const {
        const int32_t id = model_.unk_id();
        return id < 0 ? std::string() : model_.piece(id);
    }

    std::string file_;
    Model model_;
    AddedTokenMatcher added_;
    bool add_bos_ = true;
    bool add_eos_ = false;
};

}  // namespace

std::unique_ptr<Tokenizer> load_sentencepiece_tokenizer(const std::string& model, std::string file,
                                                        const TokenizerConfig& config) {
    return std::make_unique<SentencePieceTokenizer>(model, std::move(file), config);
}

}  // namespace cleave::runtime
