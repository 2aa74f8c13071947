// SPDX-License-Identifier: Apache-2.0
// A progress bar's text: a label, a bar of 30 signs, done and total, and for bytes the rate, after
// a fifth of a second. The rate counts the bytes since the first update, without that update's own.
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
