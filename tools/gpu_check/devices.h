// SPDX-License-Identifier: Apache-2.0
// The cards of both vendors, for the report and the parts.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/gpu_check/report.h"

namespace cleave::gpu_check {

struct Cards {
    std::string first;                                   // "cuda[0]"; empty: there is none
    std::map<std::string, std::vector<size_t>> by_kind;  // those whose kind is known
};

// Writes drivers and devices into the report, and an error with every reason if no card was
// found.
Cards find_cards(Report& report);

}  // namespace cleave::gpu_check
