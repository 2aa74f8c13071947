// SPDX-License-Identifier: Apache-2.0
// The tokenizer, chat template and stop tokens of a GGUF file, as the files that a Hugging Face
// folder would have, so that one reader serves both. Keys: "tokenizer.*" of
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md ; how each kind of text is cut:
// llama.cpp's src/llama-vocab.cpp. In: a header. Out: JSON, or a SentencePiece model.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/gguf.h"

namespace cleave::runtime {

// "tokenizer.json" (byte-level BPE alone), "tokenizer_config.json" or "generation_config.json";
// nothing where the file has nothing of it. UserError for a tokenizer that is not supported.
std::optional<nlohmann::json> gguf_document(const GgufFile& file, std::string_view name);

// A serialised SentencePiece model of its pieces; nothing: the tokenizer is of another kind.
std::optional<std::string> gguf_sentencepiece_model(const GgufFile& file);

}  // namespace cleave::runtime
