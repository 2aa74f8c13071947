// SPDX-License-Identifier: Apache-2.0
#include "runtime/execute/greedy.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/errors.h"

namespace cleave::runtime {

bool are_numbers(std::span<const float> logits) {
    return std::none_of(logits.begin(), logits.end(),
                        [](float logit) { return std::isnan(logit); });
}

int32_t largest_logit(std::span<const float> logits) {
    CLEAVE_CHECK(!logits.empty()) << "no logits to choose a token from";
    const auto best = std::max_element(logits.begin(), logits.end());
    return are_numbers(logits) ? static_cast<int32_t>(best - logits.begin()) : kNoToken;
}

}  // namespace cleave::runtime
