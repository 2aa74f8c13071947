// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/logits.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

#include <cstring>

#include <fmt/format.h>

#include "runtime/base/errors.h"

namespace cleave::gpu_check {

Logits::Logits(const std::string& path, size_t prompt_tokens, size_t new_tokens)
    : prompt_tokens_(prompt_tokens) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const size_t rows = prompt_tokens + new_tokens - 1;
    if (!file || bytes.empty() || prompt_tokens == 0 || new_tokens == 0 ||
        bytes.size() % (rows * sizeof(float)) != 0)
        throw UserError("{}: no logits of {} rows, but {} bytes", path, rows, bytes.size());
    row_ = bytes.size() / (rows * sizeof(float));
    values_.resize(rows * row_);
    std::memcpy(values_.data(), bytes.data(), bytes.size());
    for (size_t i = 0; i < values_.size(); ++i)
        if (!std::isfinite(values_[i]))
            throw UserError("{}: the logit of row {}, column {} is {}", path, i / row_, i % row_,
                            values_[i]);
}

float Logits::largest() const {
    float most = 0;
    for (float value : values_) most = std::max(most, std::fabs(value));
    return most;
}

std::string Logits::disagreement(const std::vector<int32_t>& chosen,
                                 const std::vector<int32_t>& tokens, double bound) const {
    for (size_t i = 0; i < std::min(chosen.size(), tokens.size()); ++i) {
        if (chosen[i] == tokens[i]) continue;
        const auto of = [&](int32_t token) {
            const auto at = static_cast<size_t>(token);
            return token < 0 || at >= row_ ? -INFINITY
                                           : values_.at((prompt_tokens_ - 1 + i) * row_ + at);
        };
        const double apart = std::fabs(static_cast<double>(of(chosen[i])) - of(tokens[i]));
        // From here on the texts are others.
        if (apart <= bound) return "";
        return fmt::format("token {} is {} here and {} there, whose logits are {} apart", i,
                           tokens[i], chosen[i], apart);
    }
    if (chosen.size() == tokens.size()) return "";
    return fmt::format("{} tokens here, {} there", tokens.size(), chosen.size());
}

}  // namespace cleave::gpu_check
