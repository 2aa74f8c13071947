// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/progress_text.h"

#include <fmt/format.h>

#include "tools/cli/terminal.h"

namespace cleave::tools {

std::string progress_text(const std::string& label, const Progress& p) {
    constexpr int64_t kWidth = 30;
    const auto filled = static_cast<size_t>(
        static_cast<double>(kWidth) * static_cast<double>(p.done) / static_cast<double>(p.total));
    std::string amount = p.as_bytes
                             ? fmt::format("{} of {}", format_bytes(p.done), format_bytes(p.total))
                             : fmt::format("{} of {}", p.done, p.total);
    if (p.as_bytes && p.seconds > 0.2)
        amount +=
            fmt::format(", {}/s", format_bytes(static_cast<int64_t>(
                                      static_cast<double>(p.done - p.done_at_start) / p.seconds)));
    return fmt::format("{} [{}{}] {}", label, std::string(filled, '#'),
                       std::string(kWidth - filled, '.'), amount);
}

}  // namespace cleave::tools
