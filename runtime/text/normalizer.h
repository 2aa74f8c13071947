// SPDX-License-Identifier: Apache-2.0
// The "normalizer" of a tokenizer.json: rewrites text before it is cut into pieces.
// In: the JSON of one normalizer (or null). Out: a function from valid UTF-8 to valid UTF-8.
// Supported: Prepend, Replace, NFC, NFD, NFKC, NFKD, Lowercase, Strip, Sequence. Any other is a
// UserError that names it. To add one: a builder function and a line in the table of the .cpp file.
#pragma once

#include <functional>
#include <string>

#include "runtime/text/json_view.h"

namespace cleave::runtime {

using Normalizer = std::function<void(std::string& text)>;

Normalizer read_normalizer(const JsonView& json);

}  // namespace cleave::runtime
