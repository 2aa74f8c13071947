// SPDX-License-Identifier: Apache-2.0
#include <sentencepiece_processor.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/sentencepiece/abi.h"

#define CLEAVE_EXPORT __attribute__((visibility("default")))

struct cleave_sentencepiece_model {
    sentencepiece::SentencePieceProcessor processor;
};

namespace {

char* copy_text(const std::string& text) {
    auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
    if (copy) std::memcpy(copy, text.c_str(), text.size() + 1);
    return copy;
}

// Runs `body`, which returns the reason of its failure or nothing.
template <class Body>
bool guarded(char** error, Body&& body) {
    *error = nullptr;
    std::string reason;
    try {
        reason = body();
    } catch (const std::exception& exception) {
        reason = exception.what();
    }
    if (!reason.empty()) *error = copy_text(reason);
    return reason.empty();
}

}  // namespace

CLEAVE_EXPORT int cleave_sentencepiece_abi_version() { return CLEAVE_SENTENCEPIECE_ABI_VERSION; }

CLEAVE_EXPORT cleave_sentencepiece_model* cleave_sentencepiece_open(const char* model, size_t size,
                                                                    char** error) {
    std::unique_ptr<cleave_sentencepiece_model> opened;
    const bool ok = guarded(error, [&]() -> std::string {
        // The library takes an empty message for a model, and then stops the process.
        if (size == 0) return "the file is empty";
        opened = std::make_unique<cleave_sentencepiece_model>();
        const auto status =
            opened->processor.LoadFromSerializedProto(std::string_view(model, size));
        return status.ok() ? "" : status.ToString();
    });
    return ok ? opened.release() : nullptr;
}

CLEAVE_EXPORT void cleave_sentencepiece_close(cleave_sentencepiece_model* model) { delete model; }

CLEAVE_EXPORT int32_t cleave_sentencepiece_size(const cleave_sentencepiece_model* model) {
    return model->processor.GetPieceSize();
}

CLEAVE_EXPORT const char* cleave_sentencepiece_piece(const cleave_sentencepiece_model* model,
                                                     int32_t id, size_t* size) {
    const std::string& piece = model->processor.IdToPiece(id);
    *size = piece.size();
    return piece.data();
}

CLEAVE_EXPORT int cleave_sentencepiece_is_control(const cleave_sentencepiece_model* model,
                                                  int32_t id) {
    return model->processor.IsControl(id) ? 1 : 0;
}

CLEAVE_EXPORT int32_t cleave_sentencepiece_bos_id(const cleave_sentencepiece_model* model) {
    return model->processor.bos_id();
}

CLEAVE_EXPORT int32_t cleave_sentencepiece_eos_id(const cleave_sentencepiece_model* model) {
    return model->processor.eos_id();
}

CLEAVE_EXPORT int32_t cleave_sentencepiece_unk_id(const cleave_sentencepiece_model* model) {
    return model->processor.unk_id();
}

CLEAVE_EXPORT int cleave_sentencepiece_drops_first_space(const cleave_sentencepiece_model* model) {
    // The model's normaliser settings decide this, and the library's interface does not show them:
    // ask it.
    char* error = nullptr;
    bool drops = false;
    guarded(&error, [&]() -> std::string {
        std::string probe;
        const std::vector<std::string> marked = {
            "\xE2\x96\x81"
            "a"};  // U+2581, SentencePiece's space
        drops = model->processor.Decode(marked, &probe).ok() && probe == "a";
        return "";
    });
    std::free(error);
    return drops ? 1 : 0;
}

CLEAVE_EXPORT int32_t* cleave_sentencepiece_encode(const cleave_sentencepiece_model* model,
                                                   const char* text, size_t size, size_t* count,
                                                   char** error) {
    int32_t* ids = nullptr;
    *count = 0;
    guarded(error, [&]() -> std::string {
        std::vector<int> found;
        const auto status = model->processor.Encode(std::string_view(text, size), &found);
        if (!status.ok()) return status.ToString();
        ids = static_cast<int32_t*>(
            std::malloc((found.size() + 1) * sizeof(int32_t)));  // never an empty block
        if (!ids) return "out of memory";
        std::copy(found.begin(), found.end(), ids);
        *count = found.size();
        return "";
    });
    return ids;
}

CLEAVE_EXPORT void cleave_sentencepiece_free(void* memory) { std::free(memory); }
