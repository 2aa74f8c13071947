// SPDX-License-Identifier: Apache-2.0
// A SentencePiece tokenizer.model, through the SentencePiece library (BPE and unigram models),
// which libcleave_sentencepiece keeps apart from the rest of the program. Its control symbols
// ("<s>", "</s>") and the added tokens of the files beside it are recognised in text; the text
// between them is encoded on its own, so each such part gets the model's dummy prefix, as with
// Hugging Face's tokenizers. Bytes that are no UTF-8 become U+FFFD in the library.
#pragma once

#include <memory>
#include <string>

#include "runtime/text/tokenizer.h"
#include "runtime/text/tokenizer_config.h"

namespace cleave::runtime {

// `model`: the bytes of a tokenizer.model; `file`: what errors name; `config`: of what is beside
// it.
std::unique_ptr<Tokenizer> load_sentencepiece_tokenizer(const std::string& model, std::string file,
                                                        const TokenizerConfig& config);

}  // namespace cleave::runtime
