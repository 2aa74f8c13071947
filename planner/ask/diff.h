// SPDX-License-Identifier: Apache-2.0
// What differs between two plans: what they were asked for, where layers, heads and weights are,
// and bytes and time by cause. Nothing is planned.
#pragma once

#include <string>
#include <vector>

#include "planner/ask/figures.h"

namespace cleave::planner {

// A figure of the workload, the options or the machine that differs.
struct Difference {
    std::string what;  // "batch", "sim:h100[8]", "links nvlink"
    std::string a, b;  // "16", "-"
};

// Layers, or their halves, that are on other devices.
struct Moved {
    std::string what;  // "layers 40-79", "embedding"
    std::string a, b;  // devices
};

// A device in one of the plans.
struct DeviceShare {
    std::string heads;
    int64_t weights = 0, kv = 0, needed = 0;  // bytes
    int64_t capacity = 0;                     // 0: the plan has no such device
    int64_t busy_ns = 0;                      // of a decode pass
    bool operator==(const DeviceShare&) const = default;
};

struct DeviceChange {
    std::string device;  // of either
    DeviceShare a, b;
};

struct PlanDiff {
    std::string answer;
    bool same_model = true;
    std::string model_a, model_b;
    std::vector<Difference> asked;  // workload, then options, then devices and links
    std::vector<Moved> moved;
    std::vector<DeviceChange> devices;  // those that differ, in a's order, then b's
    Figures a, b;
    TimeParts prefill_a, prefill_b;  // of one pass
    double slower = 0;               // b than a: 0.02 is 2 %
    bool same() const { return asked.empty() && moved.empty() && devices.empty() && same_model; }
};

// `name_a`, `name_b`: what the answer calls them.
PlanDiff diff(const Plan& a, const Plan& b, const std::string& name_a = "before",
              const std::string& name_b = "after");

}  // namespace cleave::planner
