// SPDX-License-Identifier: Apache-2.0
// Logits that `cleave run --dump-logits` wrote, and whether a second run's tokens agree with them.
// In: its file, f32 rows of each prompt token and each new token but the last.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cleave::gpu_check {

class Logits {
public:
    // UserError for a file that is absent, does not divide into that many rows, or has a value that
    // is not finite.
    Logits(const std::string& path, size_t prompt_tokens, size_t new_tokens);

    float largest() const;  // of their magnitudes

    // Empty where `tokens` are those that the logits choose, or first differ from `chosen` where
    // the two logits are within `bound` of each other; else what is wrong.
    std::string disagreement(const std::vector<int32_t>& chosen, const std::vector<int32_t>& tokens,
                             double bound) const;

private:
    size_t prompt_tokens_, row_ = 0;
    std::vector<float> values_;
};

}  // namespace cleave::gpu_check
