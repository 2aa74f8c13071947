// SPDX-License-Identifier: Apache-2.0
// What a question is about, as people write it: "embedding", "lm_head", "layers.12",
// "layers.0-15", "layers.12.attention", "layers.12.mlp", an operator, a weight or a buffer by its
// name, a device, or one of the words "token" and "links".
#pragma once

#include <string>
#include <vector>

#include "planner/plan/plan.h"

namespace cleave::planner {

enum class WhatKind : uint8_t { kPart, kDevice, kWeight, kBuffer, kToken, kLinks };

struct What {
    WhatKind kind = WhatKind::kPart;
    std::string text;       // as written
    std::vector<OpId> ops;  // of a part
    std::string pin;        // of a part: as a pin has it (planner/search/pins.h)
    DeviceId device;
    WeightId weight;
    std::vector<BufferId> buffers;  // with that name, one a device and phase
};

// UserError for a text that names nothing in the plan; it says what can be asked.
What parse_what(const Plan& plan, const std::string& text);

// The operators of "embedding", "lm_head", "layers.A-B", "layers.N.attention", "layers.N.mlp" or of
// an operator's name; empty for any other text. UserError for layers that the model lacks.
What find_part(const Plan& plan, const std::string& text);

}  // namespace cleave::planner
