// SPDX-License-Identifier: Apache-2.0
// What a progress bar shows: a label, a bar of 30 signs, how much of how much, and for bytes how
// fast, once there is a fifth of a second to measure by. The rate is that of the bytes since the
// first update, whose own were done by then.
#pragma once

#include <cstdint>
#include <string>

namespace cleave::tools {

struct Progress {
    int64_t done = 0, total = 0;
    bool as_bytes = false;
    int64_t done_at_start = 0;  // of the first update
    double seconds = 0;         // since then
};
std::string progress_text(const std::string& label, const Progress& progress);

}  // namespace cleave::tools
