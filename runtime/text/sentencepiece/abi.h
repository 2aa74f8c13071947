// SPDX-License-Identifier: Apache-2.0
// The C ABI of libcleave_sentencepiece, the only library of Cleave that links SentencePiece.
// In: a serialised model; out: its pieces, and the ids of text. SentencePiece commonly carries a
// Protobuf of its own and exports its symbols, which must not meet the Protobuf that Cleave links.
// No exception and no C++ type crosses the ABI. A model is immutable once open: any number of
// threads may use one. Texts and ids that a function hands out go back through
// `cleave_sentencepiece_free`.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CLEAVE_SENTENCEPIECE_ABI_VERSION 1

// NOLINTNEXTLINE(readability-identifier-naming): a name of C
typedef struct cleave_sentencepiece_model cleave_sentencepiece_model;

// ABI version of the library that was opened.
int cleave_sentencepiece_abi_version(void);

// Null with the reason in `error`, which is the caller's, when the bytes are no model.
cleave_sentencepiece_model* cleave_sentencepiece_open(const char* model, size_t size, char** error);
void cleave_sentencepiece_close(cleave_sentencepiece_model* model);

int32_t cleave_sentencepiece_size(const cleave_sentencepiece_model* model);

// The piece of an id in [0, size), as the model writes it; the model's own memory.
const char* cleave_sentencepiece_piece(const cleave_sentencepiece_model* model, int32_t id,
                                       size_t* size);
int cleave_sentencepiece_is_control(const cleave_sentencepiece_model* model, int32_t id);

// Ids of special pieces, negative when the model has none.
int32_t cleave_sentencepiece_bos_id(const cleave_sentencepiece_model* model);
int32_t cleave_sentencepiece_eos_id(const cleave_sentencepiece_model* model);
int32_t cleave_sentencepiece_unk_id(const cleave_sentencepiece_model* model);

// 1 when decoding drops the space at the beginning of a text.
int cleave_sentencepiece_drops_first_space(const cleave_sentencepiece_model* model);

// The ids of a text, the caller's, and null in `error`; or null with the reason in `error`, which
// is the caller's.
int32_t* cleave_sentencepiece_encode(const cleave_sentencepiece_model* model, const char* text,
                                     size_t size, size_t* count, char** error);

void cleave_sentencepiece_free(void* memory);

#ifdef __cplusplus
}
#endif
