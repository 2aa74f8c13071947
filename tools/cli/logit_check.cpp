// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/logit_check.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace cleave::tools {

LogitDifference compare_logits(std::span<const float> logits, std::span<const float> of_host,
                               size_t vocab_size) {
    if (logits.empty() || logits.size() != of_host.size())
        return {0, fmt::format("there are {} logits here, {} on the host", logits.size(),
                               of_host.size())};
    LogitDifference difference;
    for (size_t i = 0; i < logits.size(); ++i) {
        if (!std::isfinite(logits[i]) || !std::isfinite(of_host[i]))
            return {0, fmt::format("the logit of row {}, column {} is {} here, {} on the host",
                                   i / vocab_size, i % vocab_size, logits[i], of_host[i])};
        difference.largest =
            std::max(difference.largest, std::fabs(static_cast<double>(logits[i]) - of_host[i]));
    }
    return difference;
}

}  // namespace cleave::tools
