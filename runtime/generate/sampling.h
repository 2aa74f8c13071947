// SPDX-License-Identifier: Apache-2.0
// One token from a row of logits: greedy, or drawn by temperature and nucleus. A draw depends on
// (seed, sequence, position) alone, so that neither batching nor devices change a sampled text.
#pragma once

#include <cstdint>
#include <span>

namespace cleave::runtime {

struct SamplingOptions {
    float temperature = 0.0f;  // 0: greedy
    float top_p = 1.0f;
    uint64_t seed = 0;  // draws come from a counter on (seed, sequence, position)
};

// One token from logits [vocab]. Greedy takes the lowest id among equals. kNoToken
// (runtime/execute/greedy.h) where a logit is NaN.
int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                     uint64_t sequence, uint64_t position);

}  // namespace cleave::runtime
