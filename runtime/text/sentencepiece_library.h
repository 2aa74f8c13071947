// SPDX-License-Identifier: Apache-2.0
// libcleave_sentencepiece as opened at the first use, apart from the process's other libraries, and
// never closed. Tried in order: beside the executable (../lib, then its own folder), then the
// loader's own search.
#pragma once

#include "runtime/text/sentencepiece/abi.h"

namespace cleave::runtime {

struct SentencePieceLibrary {
    decltype(&cleave_sentencepiece_open) open = nullptr;
    decltype(&cleave_sentencepiece_close) close = nullptr;
    decltype(&cleave_sentencepiece_size) size = nullptr;
    decltype(&cleave_sentencepiece_piece) piece = nullptr;
    decltype(&cleave_sentencepiece_is_control) is_control = nullptr;
    decltype(&cleave_sentencepiece_bos_id) bos_id = nullptr;
    decltype(&cleave_sentencepiece_eos_id) eos_id = nullptr;
    decltype(&cleave_sentencepiece_unk_id) unk_id = nullptr;
    decltype(&cleave_sentencepiece_drops_first_space) drops_first_space = nullptr;
    decltype(&cleave_sentencepiece_encode) encode = nullptr;
    decltype(&cleave_sentencepiece_free) free = nullptr;
};

// Thread-safe. UserError with every name that was tried when none opens.
const SentencePieceLibrary& sentencepiece_library();

}  // namespace cleave::runtime
