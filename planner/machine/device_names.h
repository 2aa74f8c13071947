// SPDX-License-Identifier: Apache-2.0
// Names of many devices in a few words, as device lists have them: "sim:h100[0-7], host[0]".
#pragma once

#include <string>
#include <vector>

#include "planner/machine/machine.h"

namespace cleave::planner {

// In their order. Neighbours that differ in their number alone stand once, with ranges of it, and
// of many ranges the first two and the last: "sim:h100[0,8,...,504] (64)". A name without a number
// stands as it is.
std::string folded_names(const std::vector<std::string>& names);
std::string folded_names(const Machine& machine, const std::vector<DeviceId>& devices);

// How many each of a row has: "2, 1, 2"; of many, neighbours that have as many once: "9 (x 16), 8
// (x 110)", and of many such the first two and the last.
std::string folded_counts(const std::vector<size_t>& counts, const char* comma);

// Numbers in their order: "0-3,8-11", of many ranges "0-1,4-5,...,60-61".
std::string folded_numbers(const std::vector<int64_t>& numbers);

}  // namespace cleave::planner
