// SPDX-License-Identifier: Apache-2.0
// Log-probabilities of tokens, of the model's own distribution: before biases, penalties,
// temperature and filters, as OpenAI's API has them.
// In: a row of logits. Out: natural logarithms of the softmax, which are 0 or less.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace cleave::runtime {

// As many most likely tokens as may be asked for.
inline constexpr int32_t kMostTopLogprobs = 20;

struct TokenLogprob {
    int32_t id = 0;
    float logprob = 0;
};

struct TokenLogprobs {
    TokenLogprob chosen;
    int32_t rank = 0;               // of the chosen one: 0 is the likeliest, lower ids first
    std::vector<TokenLogprob> top;  // most likely first, lower ids first among equals
};

// UserError unless `top` is 0 to kMostTopLogprobs.
void check_top_logprobs(int32_t top);

// Of logits [vocab], none NaN: the logarithm of `token`'s probability and of the `top` most likely
// ones', or of as many as there are.
TokenLogprobs logprobs_of(std::span<const float> logits, int32_t token, int32_t top);

}  // namespace cleave::runtime
