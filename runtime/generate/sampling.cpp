// SPDX-License-Identifier: Apache-2.0
#include "runtime/generate/sampling.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/execute/greedy.h"
#include "runtime/generate/philox.h"

namespace cleave::runtime {

namespace {

struct Candidate {
    int32_t id = 0;
    double weight = 0;  // exp((logit - max) / temperature): a probability times a common factor
};

// The smallest set of most likely tokens whose probability reaches top_p (Holtzman et al., arXiv
// 1904.09751), most likely first, lower ids first among equals.
void keep_nucleus(std::vector<Candidate>& candidates, double total, double top_p) {
    // Fewer than n tokens have less than (1 - top_p) / n each in all, so none of those is needed to
    // reach top_p.
    double cutoff = (1.0 - top_p) * total / static_cast<double>(candidates.size());
    std::erase_if(candidates, [&](const Candidate& c) { return c.weight < cutoff; });
    std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
        return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
    });
    double sum = 0;
    size_t kept = 0;
    while (kept < candidates.size()) {
        sum += candidates[kept++].weight;
        if (sum >= top_p * total) break;
    }
    candidates.resize(kept);
}

}  // namespace

int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                     uint64_t sequence, uint64_t position) {
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
    if (options.top_p < 1.0f) {
        keep_nucleus(candidates, total, options.top_p);
        total = 0;
        for (const Candidate& c : candidates) total += c.weight;
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

}  // namespace cleave::runtime
