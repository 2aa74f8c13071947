// SPDX-License-Identifier: Apache-2.0
// The devices of a plan and their links as tables. Those alike are one row, of any number.
#pragma once

#include <string>

#include "planner/plan/plan.h"

namespace cleave::planner {

// Each device's stages, layers, heads, memory and time in a decode pass. The columns of bytes add
// up to the capacity. Of more than `most` kinds of devices those that are nearly alike are one row.
std::string devices_text(const Plan& plan, int width, size_t most = 24);

// What moves between devices in a decode pass, `most` sorts of links, the busiest first.
std::string links_text(const Plan& plan, int width, size_t most = 6);

// "sim:h100[0-7]", the devices whose memory is used most, and how much of how much.
struct Fullest {
    std::string devices;
    size_t count = 0;  // of them
    int64_t needed = 0, capacity = 0;
};
Fullest fullest(const Plan& plan);

}  // namespace cleave::planner
