// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/sentencepiece_library.h"

#include <string>
#include <utility>

#include "runtime/base/dynamic_library.h"
#include "runtime/base/errors.h"

namespace cleave::runtime {

namespace {

template <class Function>
void resolve(const DynamicLibrary& library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(library.symbol(name));
    if (!function) throw UserError("{} lacks {}: it is no library of Cleave", library.name(), name);
}

SentencePieceLibrary open() {
    std::string why;
    auto found = DynamicLibrary::open_first(library_names("libcleave_sentencepiece.so"), &why,
                                            DynamicLibrary::Scope::kIsolated);
    if (!found) {
        throw UserError(
            "tokenizer.model files need libcleave_sentencepiece and SentencePiece, which could "
            "not be opened: {}; install libsentencepiece0, build or install Cleave anew, or "
            "give a tokenizer.json with $tokenizer",
            why);
    }
    // Deliberately leaked: its Protobuf does not support being unloaded.
    const DynamicLibrary& l = *new DynamicLibrary(std::move(*found));
    auto* abi = l.function<int()>("cleave_sentencepiece_abi_version");
    if (!abi || abi() != CLEAVE_SENTENCEPIECE_ABI_VERSION) {
        throw UserError(
            "{} is of another version of Cleave (its ABI is {}, wanted {}): build or install "
            "both anew",
            l.name(), abi ? abi() : 0, CLEAVE_SENTENCEPIECE_ABI_VERSION);
    }
    SentencePieceLibrary library;
    resolve(l, "cleave_sentencepiece_open", library.open);
    resolve(l, "cleave_sentencepiece_close", library.close);
    resolve(l, "cleave_sentencepiece_size", library.size);
    resolve(l, "cleave_sentencepiece_piece", library.piece);
    resolve(l, "cleave_sentencepiece_is_control", library.is_control);
    resolve(l, "cleave_sentencepiece_bos_id", library.bos_id);
    resolve(l, "cleave_sentencepiece_eos_id", library.eos_id);
    resolve(l, "cleave_sentencepiece_unk_id", library.unk_id);
    resolve(l, "cleave_sentencepiece_drops_first_space", library.drops_first_space);
    resolve(l, "cleave_sentencepiece_encode", library.encode);
    resolve(l, "cleave_sentencepiece_free", library.free);
    return library;
}

}  // namespace

const SentencePieceLibrary& sentencepiece_library() {
    static const SentencePieceLibrary kLibrary = open();
    return kLibrary;
}

}  // namespace cleave::runtime
