// SPDX-License-Identifier: Apache-2.0
// Metaspace as tokenizer.json writes it: a space is a visible character ("▁"), and one is put
// before the text. The pre-tokenizer and the decoder read the same fields.
#pragma once

#include <string>

#include "runtime/text/json_view.h"

namespace cleave::runtime {

struct Metaspace {
    enum class Scheme { kAlways, kFirst, kNever };

    std::string replacement;
    Scheme scheme = Scheme::kAlways;
    bool split = true;
};

// Also understands the older field "add_prefix_space". UserError on an unknown scheme.
Metaspace read_metaspace(const JsonView& json);

}  // namespace cleave::runtime
