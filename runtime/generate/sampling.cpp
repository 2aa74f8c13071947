// SPDX-License-Identifier: Apache-2.0
#include "runtime/generate/sampling.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/errors.h"
#include "runtime/execute/greedy.h"
#include "runtime/generate/philox.h"

namespace cleave::runtime {

namespace {

struct Candidate {
    int32_t id = 0;
    double weight = 0;  // exp((logit - max) / temperature): a probability times a common factor
};

bool more_likely(const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
}

double total_weight(const std::vector<Candidate>& candidates) {
    double total = 0;
    for (const Candidate& c : candidates) total += c.weight;
    return total;
}

// The k most likely tokens, lower ids first among equals (Fan et al., arXiv 1805.04833); they stay
// in the order of their ids.
void keep_most_likely(std::vector<Candidate>& candidates, int32_t k) {
    const auto count = static_cast<size_t>(k);
    if (k <= 0 || count >= candidates.size()) return;
    std::vector<Candidate> sorted = candidates;
    std::nth_element(sorted.begin(), sorted.begin() + k, sorted.end(), more_likely);
    const Candidate first_dropped = sorted[count];
    std::erase_if(candidates, [&](const Candidate& c) { return !more_likely(c, first_dropped); });
}

// Tokens at least min_p times as likely as the likeliest (Nguyen et al., arXiv 2407.01082), whose
// weight is exp(0).
void keep_above(std::vector<Candidate>& candidates, double min_p) {
    std::erase_if(candidates, [&](const Candidate& c) { return c.weight < min_p; });
}

// The smallest set of most likely tokens whose probability reaches top_p (Holtzman et al., arXiv
// 1904.09751), most likely first, lower ids first among equals.
void keep_nucleus(std::vector<Candidate>& candidates, double total, double top_p) {
    // Fewer than n tokens have less than (1 - top_p) / n each in all, so none of those is needed to
    // reach top_p.
    double cutoff = (1.0 - top_p) * total / static_cast<double>(candidates.size());
    std::erase_if(candidates, [&](const Candidate& c) { return c.weight < cutoff; });
    std::sort(candidates.begin(), candidates.end(), more_likely);
    double sum = 0;
    size_t kept = 0;
    while (kept < candidates.size()) {
        sum += candidates[kept++].weight;
        if (sum >= top_p * total) break;
    }
    candidates.resize(kept);
}

void check_range(const char* name, double value, double least, double most) {
    if (!(value >= least && value <= most))
        throw UserError("{} {}: it is a number from {} to {}", name, value, least, most);
}

bool adjusts(const SamplingOptions& options) {
    return needs_counts(options) || !options.logit_bias.empty();
}

int32_t sample(std::span<const float> logits, const SamplingOptions& options, uint64_t sequence,
               uint64_t position) {
    const int32_t best = largest_logit(logits);
    if (best == kNoToken) return kNoToken;
    const float most = logits[static_cast<size_t>(best)];
    if (options.temperature <= 0.0f || std::isinf(most)) return best;
    std::vector<Candidate> candidates(logits.size());
    double total = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
        double weight = std::exp((static_cast<double>(logits[i]) - most) / options.temperature);
        candidates[i] = {static_cast<int32_t>(i), weight};
        total += weight;
    }
    if (options.top_k > 0 || options.min_p > 0.0f) {
        keep_most_likely(candidates, options.top_k);
        keep_above(candidates, options.min_p);
        total = total_weight(candidates);
    }
    if (options.top_p < 1.0f) {
        keep_nucleus(candidates, total, options.top_p);
        total = total_weight(candidates);
    }
    double left = uniform_draw(options.seed, sequence, position) * total;
    for (const Candidate& c : candidates) {
        if (left < c.weight) return c.id;
        left -= c.weight;
    }
    // Rounding may leave a last sliver: it belongs to the last token that can be drawn at all.
    auto last = std::find_if(candidates.rbegin(), candidates.rend(),
                             [](const auto& c) { return c.weight > 0; });
    return last->id;
}

}  // namespace

void check_sampling(const SamplingOptions& options, int64_t vocab) {
    check_range("$temperature", options.temperature, 0, 100);
    check_range("$top_p", options.top_p, 0, 1);
    check_range("$min_p", options.min_p, 0, 1);
    check_range("$presence_penalty", options.presence_penalty, -2, 2);
    check_range("$frequency_penalty", options.frequency_penalty, -2, 2);
    if (options.top_k < 0)
        throw UserError("$top_k {}: it is a count of tokens; 0 stands for all", options.top_k);
    if (!(options.repetition_penalty > 0.0f && options.repetition_penalty <= 10.0f))
        throw UserError("$repetition_penalty {}: it is above 0 and at most 10; 1 stands for none",
                        options.repetition_penalty);
    for (const LogitBias& bias : options.logit_bias) {
        if (bias.id < 0 || bias.id >= vocab)
            throw UserError("$logit_bias names token id {}; this model's ids are 0 to {}", bias.id,
                            vocab - 1);
        if (!(std::abs(bias.value) <= 100.0f))
            throw UserError("$logit_bias {} of token id {}: it is a number from -100 to 100",
                            bias.value, bias.id);
    }
}

bool needs_counts(const SamplingOptions& options) {
    return options.repetition_penalty != 1.0f || options.presence_penalty != 0.0f ||
           options.frequency_penalty != 0.0f;
}

bool takes_largest_logit(const SamplingOptions& options) {
    return options.temperature <= 0.0f && !adjusts(options);
}

void adjust_logits(std::span<float> logits, const SamplingOptions& options,
                   const TokenCounts& counts) {
    const auto logit_of = [&](int32_t id) -> float& {
        CLEAVE_CHECK(id >= 0 && static_cast<size_t>(id) < logits.size())
            << "token id " << id << " of " << logits.size();
        return logits[static_cast<size_t>(id)];
    };
    for (const LogitBias& bias : options.logit_bias) logit_of(bias.id) += bias.value;
    if (!needs_counts(options)) return;
    const float repetition = options.repetition_penalty;
    for (const auto& [id, count] : counts.counts()) {
        float& logit = logit_of(id);
        // CTRL divides positive logits; negative ones are multiplied, as everyone does since, so
        // that the token becomes less likely either way.
        logit = logit > 0.0f ? logit / repetition : logit * repetition;
        if (count.in_text == 0) continue;
        logit -= options.presence_penalty;
        logit -= options.frequency_penalty * static_cast<float>(count.in_text);
    }
}

int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                     uint64_t sequence, uint64_t position, const TokenCounts& counts) {
    if (!adjusts(options)) return sample(logits, options, sequence, position);
    std::vector<float> adjusted(logits.begin(), logits.end());
    adjust_logits(adjusted, options, counts);
    return sample(adjusted, options, sequence, position);
}

}  // namespace cleave::runtime
