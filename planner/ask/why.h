// SPDX-License-Identifier: Apache-2.0
// Why something is where it is: its devices with their shares, what put it there, and what the next
// best places would cost. Those are really planned, with the thing forced there.
#pragma once

#include <string>
#include <vector>

#include "planner/ask/case.h"
#include "planner/ask/figures.h"
#include "planner/ask/what.h"

namespace cleave::planner {

// A device's share of a part or of a weight.
struct Holding {
    DeviceId device;
    std::string share;  // "heads 0-15", "rows 0-4095", "whole"
    std::string noun;   // of the range in it: "heads"; empty where there is none
    Range range;
    int64_t weight_bytes = 0;  // of shards; of a buffer, its size
    int64_t kv_bytes = 0;
    int64_t compute_ns = 0;  // of one decode pass
};

// Another place, planned.
struct Place {
    std::string change;  // "with layers.12 on sim:h100[4]", "without the pin layers.0-15=..."
    std::string where;   // the devices that have it then
    std::string shape;
    int64_t objective_ns = 0, decode_ns = 0;
    double slower = 0;    // than the plan: 0.02 is 2 %
    std::string refusal;  // why it is none; then the figures are 0
    Grounds grounds;
    bool lacks_memory = false;
};

struct DeviceFacts {
    DeviceMemory memory;
    DeviceTime time;
    std::vector<int> stages;
    std::string layers, heads;       // "0-39", "16-31"; empty: none
    int64_t sent = 0, received = 0;  // bytes of a decode pass
};

struct WhyAnswer {
    What what;
    std::string answer;  // a sentence or two
    std::vector<Holding> holdings;
    std::vector<int> stages;
    std::string because;        // "pin", "memory", "speed", "only place"
    std::vector<Place> places;  // of a part and of a device, best first
    DeviceFacts device;         // of a device
    TimeParts decode, prefill;  // of a token
    std::vector<WorkTime> work;
    std::vector<DeviceTime> times;
    std::vector<LinkLoad> links;  // of links
    Grounds grounds;              // of the plan
};

WhyAnswer why(const Plan& plan, const std::string& what);

}  // namespace cleave::planner
