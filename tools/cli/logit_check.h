// SPDX-License-Identifier: Apache-2.0
// What `cleave run --check` compares: the logits of a run with those of the host. Logits that are
// NaN have no difference, nor have texts of other lengths: then `reason` is set, and a check with
// a reason has failed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace cleave::tools {

struct LogitDifference {
    double largest = 0;
    int64_t rows = 0;          // positions that were compared
    int64_t same_choices = 0;  // of them those with the same likeliest token
    // Kullback and Leibler's, nats summed over rows: what the reference's distribution loses where
    // this one stands in for it.
    double divergence = 0;
    std::string reason;  // empty: all of it holds

    void add(const LogitDifference& other);
};

// Both [rows, vocab_size], of one sequence.
LogitDifference compare_logits(std::span<const float> logits, std::span<const float> of_host,
                               size_t vocab_size);

}  // namespace cleave::tools
