// SPDX-License-Identifier: Apache-2.0
// What a tokenizer that loads must bear, wherever it comes from.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "runtime/text/tokenizer.h"
#include "tests/fuzz/harness.h"

namespace cleave::fuzz {

// Encodes a text, decodes it, and asks for up to a thousand tokens.
inline void use_tokenizer(const runtime::Tokenizer& tokenizer) {
    const std::vector<int32_t> ids =
        tokenizer.encode("Once upon a time <s> \xe2\x82\xac\xff 123  \n\t caf\xc3\xa9</s>");
    if (tokenizer.decode(ids, false).size() > (size_t{1} << 24)) std::abort();
    std::vector<int32_t> all(static_cast<size_t>(std::min(tokenizer.vocab_size(), 1000)));
    std::iota(all.begin(), all.end(), 0);
    for (const int32_t id : all) try_to([&] { tokenizer.token_text(id); });
    tokenizer.decode(all);
}

}  // namespace cleave::fuzz
