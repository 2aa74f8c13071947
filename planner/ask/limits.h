// SPDX-License-Identifier: Apache-2.0
// How far a plan goes, which device ends it, and what goes beyond: one device more, narrower
// weights, a narrower cache; and which device to replace first. The further ones are planned.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/ask/case.h"
#include "planner/ask/figures.h"

namespace cleave::planner {

// One step further.
struct Further {
    std::string change;  // "sim:h100[8] more", "int8 weights"
    std::optional<Figures> then;
    std::string refusal;
    double slower = 0;  // than the plan
};

// One device of a kind, twice as fast (memory, arithmetic), in the plan's shape.
struct Faster {
    std::string device;  // the first of its kind
    int64_t alike = 0;   // devices of that kind that the plan uses
    int64_t objective_ns = 0;
    double gain = 0;  // of the plan's time: 0.05 is 5 % less
    Grounds grounds;
};

struct LimitsAnswer {
    std::string answer;                  // all of
    std::vector<std::string> sentences;  // sequences, context, KV tokens, further, replacing
    Figures now;
    std::vector<Further> further;
    std::vector<Faster> faster;     // by gain
    std::vector<std::string> full;  // devices that are full where the batch ends
    std::string no_device;          // why one more device is not among `further`
};

// UserError for a plan with replicas of several makes.
LimitsAnswer limits(const Plan& plan);

// The name of a further device like that one: "sim:h100[8]". Empty where more of its kind hold no
// more, as hosts do, which share one memory.
std::string next_device(const Machine& machine, DeviceId like);

}  // namespace cleave::planner
