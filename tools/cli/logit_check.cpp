// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/logit_check.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace cleave::tools {
namespace {

// log(sum(exp(row))).
double log_sum(std::span<const float> row) {
    const double most = *std::ranges::max_element(row);
    double sum = 0;
    for (float logit : row) sum += std::exp(static_cast<double>(logit) - most);
    return most + std::log(sum);
}

// sum(p * log(p / q)), p of the reference.
double divergence(std::span<const float> logits, std::span<const float> reference) {
    const double of_logits = log_sum(logits), of_reference = log_sum(reference);
    double sum = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
        const double log_p = static_cast<double>(reference[i]) - of_reference;
        const double log_q = static_cast<double>(logits[i]) - of_logits;
        sum += std::exp(log_p) * (log_p - log_q);
    }
    return std::max(0.0, sum);
}

}  // namespace

void LogitDifference::add(const LogitDifference& other) {
    largest = std::max(largest, other.largest);
    rows += other.rows;
    same_choices += other.same_choices;
    divergence += other.divergence;
    if (reason.empty()) reason = other.reason;
}

LogitDifference compare_logits(std::span<const float> logits, std::span<const float> of_host,
                               size_t vocab_size) {
    LogitDifference difference;
    if (logits.empty() || logits.size() != of_host.size()) {
        difference.reason =
            fmt::format("there are {} logits here, {} on the host", logits.size(), of_host.size());
        return difference;
    }
    for (size_t i = 0; i < logits.size(); ++i) {
        if (!std::isfinite(logits[i]) || !std::isfinite(of_host[i])) {
            difference.reason =
                fmt::format("the logit of row {}, column {} is {} here, {} on the host",
                            i / vocab_size, i % vocab_size, logits[i], of_host[i]);
            return difference;
        }
        difference.largest =
            std::max(difference.largest, std::fabs(static_cast<double>(logits[i]) - of_host[i]));
    }
    for (size_t begin = 0; begin + vocab_size <= logits.size(); begin += vocab_size) {
        const auto here = logits.subspan(begin, vocab_size);
        const auto there = of_host.subspan(begin, vocab_size);
        ++difference.rows;
        difference.same_choices += std::ranges::max_element(here) - here.begin() ==
                                   std::ranges::max_element(there) - there.begin();
        difference.divergence += divergence(here, there);
    }
    return difference;
}

}  // namespace cleave::tools
