// SPDX-License-Identifier: Apache-2.0
#include "runtime/generate/logprobs.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/errors.h"

namespace cleave::runtime {

void check_top_logprobs(int32_t top) {
    if (top < 0 || top > kMostTopLogprobs)
        throw UserError("$logprobs {}: it is a count of tokens from 0 to {}", top,
                        kMostTopLogprobs);
}

TokenLogprobs logprobs_of(std::span<const float> logits, int32_t token, int32_t top) {
    CLEAVE_CHECK(token >= 0 && static_cast<size_t>(token) < logits.size() && top >= 0)
        << "token id " << token << " of " << logits.size() << ", top " << top;
    const float most = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - most);
    const double log_sum = std::log(sum);
    const auto of = [&](int32_t id) -> TokenLogprob {
        const double logit = logits[static_cast<size_t>(id)];
        return {id, static_cast<float>(logit - most - log_sum)};
    };
    const auto more_likely_id = [&](int32_t a, int32_t b) {
        const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
        return x != y ? x > y : a < b;
    };
    TokenLogprobs result{of(token)};
    const auto vocab = static_cast<int32_t>(logits.size());
    // The most likely so far, in order.
    std::vector<int32_t> best;
    for (int32_t id = 0; id < vocab; ++id) {
        if (more_likely_id(id, token)) ++result.rank;
        if (best.size() == static_cast<size_t>(top)) {
            if (top == 0 || !more_likely_id(id, best.back())) continue;
            best.pop_back();
        }
        best.insert(std::upper_bound(best.begin(), best.end(), id, more_likely_id), id);
    }
    for (const int32_t id : best) result.top.push_back(of(id));
    return result;
}

}  // namespace cleave::runtime
