// SPDX-License-Identifier: Apache-2.0
// In: what an ONNX file says of its nodes' devices, and the Graph recovered from it. Out: pins. A
// name is a device of the machine; a position counts the machine's devices. Layers whose nodes
// agree become one pin for a run of layers, other operators a pin each. Where the machine lacks the
// file's devices there are no pins, and the reason.
#pragma once

#include <string>
#include <vector>

#include "importer/onnx/affinities.h"
#include "planner/plan/plan.h"

namespace cleave::planner {

struct AffinityPins {
    std::vector<Pin> pins;
    std::string left_out;  // why there are none, though the file has affinities
};

// UserError for an operator whose nodes the file puts on several devices: names each node with its
// device, and the ways out.
AffinityPins pins_from_affinities(const Graph& graph, const importer::Affinities& affinities,
                                  const Machine& machine);

}  // namespace cleave::planner
