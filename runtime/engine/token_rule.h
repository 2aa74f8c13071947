// SPDX-License-Identifier: Apache-2.0
// What a text may go on with: a grammar, as the engine sees one. In: the tokens that were taken.
// Out: which may be next. The state is one copy's, and follows new tokens alone, each once: passes
// that compute known tokens again do not touch it, so a text is the same however it was scheduled.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace cleave::runtime {

// Used on the engine's thread, which waits meanwhile. What it throws ends its request as a fault.
class TokenRule {
public:
    virtual ~TokenRule() = default;

    // Token i is allowed where bit i % 32 of word i / 32 is set; [ceil(vocab / 32)] words, valid
    // until take(). Empty: every token is.
    virtual std::span<const uint32_t> allowed() = 0;

    // `token`, which is allowed, comes next. True where the text is whole: nothing may follow.
    virtual bool take(int32_t token) = 0;
};

// Makes one for each copy of a request. Nothing: its texts are free.
using TokenRuleMaker = std::function<std::unique_ptr<TokenRule>()>;

}  // namespace cleave::runtime
