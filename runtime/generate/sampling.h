// SPDX-License-Identifier: Apache-2.0
// One token from a row of logits: greedy, or drawn from what temperature, top-k, min-p and the
// nucleus leave, after logit biases and penalties. Pure: a draw depends on (seed, sequence,
// position) alone, and penalties on the sequence's own tokens, so that neither batching nor devices
// change a sampled text.
//
// In this order: logit biases; repetition, then presence and frequency penalties; where the
// temperature is 0 the largest logit; else temperature, top-k, min-p, top-p. Each filter sees the
// distribution that those before it left, made to sum to one again.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace cleave::runtime {

struct LogitBias {
    int32_t id = 0;
    float value = 0;  // [-100, 100]; added to the token's logit
};

// What each parameter leaves alone by default is a sequence's text: defaults give the greedy choice
// from the model's own logits.
struct SamplingOptions {
    float temperature = 0.0f;  // [0, 100]; 0: greedy
    float top_p = 1.0f;        // [0, 1]; 1: all tokens. Holtzman et al., arXiv 1904.09751
    uint64_t seed = 0;         // draws come from a counter on (seed, sequence, position)
    int32_t top_k = 0;         // this many most likely tokens; 0: all. Fan et al., arXiv 1805.04833
    float min_p = 0.0f;        // [0, 1] of the likeliest's probability. Nguyen et al., 2407.01082
    // (0, 10] on tokens of the prompt and of the text so far; 1: none. Keskar et al. (CTRL), arXiv
    // 1909.05858, section 4.1.
    float repetition_penalty = 1.0f;
    // [-2, 2] on tokens of the text so far, without the prompt, as OpenAI's API has them.
    float presence_penalty = 0.0f;      // once for a token that is there
    float frequency_penalty = 0.0f;     // for each time that it is there
    std::vector<LogitBias> logit_bias;  // biases of one token add up
};

// UserError naming the first parameter that is out of its range. `vocab`: ids of biases are less.
void check_sampling(const SamplingOptions& options, int64_t vocab);

// Whether penalties look at a sequence's tokens.
bool needs_counts(const SamplingOptions& options);

// Whether the token is the largest of the model's own logits, which a device can choose itself.
bool takes_largest_logit(const SamplingOptions& options);

// The tokens of one sequence, as penalties see them.
class TokenCounts {
public:
    struct Count {
        bool in_prompt = false;
        int32_t in_text = 0;  // new tokens
    };
    void add_prompt(std::span<const int32_t> ids) {
        for (const int32_t id : ids) counts_[id].in_prompt = true;
    }
    void add(int32_t id) { ++counts_[id].in_text; }
    const std::map<int32_t, Count>& counts() const { return counts_; }

private:
    std::map<int32_t, Count> counts_;  // of tokens that are there
};

// Adds biases and takes off penalties, in place. logits [vocab]; ids that have none are no tokens
// of the model: InternalError.
void adjust_logits(std::span<float> logits, const SamplingOptions& options,
                   const TokenCounts& counts);

// One token from logits [vocab]. Greedy takes the lowest id among equals. kNoToken
// (runtime/execute/greedy.h) where a logit is NaN. `counts`: those of the sequence's tokens where
// needs_counts(options), otherwise not looked at.
int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                     uint64_t sequence, uint64_t position, const TokenCounts& counts = {});

}  // namespace cleave::runtime
