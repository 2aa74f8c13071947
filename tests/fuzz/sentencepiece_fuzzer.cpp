// SPDX-License-Identifier: Apache-2.0
// tokenizer.model, and GGUF files whose tokenizer becomes one. Cleave opens the library of
// SentencePiece apart from its own Protobuf, which the sanitizers do not allow; nothing of this
// program needs Protobuf, so it links the library. What loads encodes and decodes.
#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/protobuf_wire.h"
#include "runtime/text/sentencepiece_library.h"
#include "runtime/text/tokenizer.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/use_tokenizer.h"

namespace {

using Random = std::mt19937_64;

size_t below(Random& random, size_t count) { return count > 0 ? random() % count : 0; }

// A field, which changes.
struct Field {
    uint64_t number = 0, type = 0;
    std::string content;
};

// Nothing where the bytes are no message.
std::optional<std::vector<Field>> fields_of(std::string_view bytes) {
    std::vector<Field> fields;
    while (!bytes.empty()) {
        const std::optional<cleave::WireField> field = cleave::take_field(bytes);
        if (!field) return std::nullopt;
        fields.push_back({field->number, field->type, std::string(field->content)});
    }
    return fields;
}

std::string message_of(const std::vector<Field>& fields) {
    std::string bytes;
    for (const Field& field : fields) {
        cleave::append_varint(bytes, field.number << 3 | field.type);
        if (field.type == 2) cleave::append_varint(bytes, field.content.size());
        bytes += field.content;
    }
    return bytes;
}

std::string changed_text(std::string text) {
    const size_t size = text.size();
    text.resize(size + 16);
    text.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(text.data()), size, text.size()));
    return text;
}

// One field has another value, comes twice, goes, or changes its place; in a message inside, too.
std::string changed_message(std::string_view bytes, Random& random) {
    std::optional<std::vector<Field>> fields = fields_of(bytes);
    if (!fields || fields->empty()) return changed_text(std::string(bytes));
    const size_t at = below(random, fields->size()), other = below(random, fields->size());
    Field& field = (*fields)[at];
    constexpr std::array<uint64_t, 9> kNumbers{
        0, 1, 2, 3, 6, 255, (uint64_t{1} << 31) - 1, ~uint64_t{0}, uint64_t{1} << 63};
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    constexpr std::array kReals{
        0.0F,      -1.0F,      1e30F, -1e30F,
        kInfinity, -kInfinity, -0.0F, std::numeric_limits<float>::quiet_NaN()};
    switch (below(random, 8)) {
        case 0:
            fields->insert(fields->begin() + static_cast<std::ptrdiff_t>(other), Field(field));
            break;
        case 1: fields->erase(fields->begin() + static_cast<std::ptrdiff_t>(at)); break;
        case 2: std::swap(field, (*fields)[other]); break;
        default:
            if (field.type == 0) {
                field.content.clear();
                cleave::append_varint(field.content, kNumbers[below(random, kNumbers.size())]);
            } else if (field.type == 5) {
                const float real = kReals[below(random, kReals.size())];
                std::copy_n(reinterpret_cast<const char*>(&real), 4, field.content.begin());
            } else {
                field.content = changed_message(field.content, random);
            }
    }
    return message_of(*fields);
}

}  // namespace

const cleave::runtime::SentencePieceLibrary& cleave::runtime::sentencepiece_library() {
    static const SentencePieceLibrary kLinked{cleave_sentencepiece_open,
                                              cleave_sentencepiece_close,
                                              cleave_sentencepiece_size,
                                              cleave_sentencepiece_piece,
                                              cleave_sentencepiece_is_control,
                                              cleave_sentencepiece_bos_id,
                                              cleave_sentencepiece_eos_id,
                                              cleave_sentencepiece_unk_id,
                                              cleave_sentencepiece_drops_first_space,
                                              cleave_sentencepiece_encode,
                                              cleave_sentencepiece_free};
    return kLinked;
}

void cleave::fuzz::run_input(std::string_view bytes) {
    const char* name = bytes.starts_with("GGUF") ? "model.gguf" : "tokenizer.model";
    use_tokenizer(*runtime::load_tokenizer(write_file(bytes, name)));
}

// A name of libFuzzer. Of four changes three keep a model a message.
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    if (seed % 4 != 0 && !bytes.starts_with("GGUF")) {
        Random random(seed);
        const std::string changed = changed_message(bytes, random);
        if (changed.size() > max_size) return 0;
        std::ranges::copy(changed, data);
        return changed.size();
    }
    return LLVMFuzzerMutate(data, size, max_size);
}
