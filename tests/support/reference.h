// SPDX-License-Identifier: Apache-2.0
// The reference forward pass: interprets a Graph's operators one by one in double precision, reads
// as prose, is slow, and shares no code with codegen. What every kernel and plan is compared with.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "importer/graph/graph.h"

namespace cleave::test {

// Logits [tokens, vocab] of one sequence from position 0. UserError for an Opaque operator.
std::vector<double> reference_logits(const importer::Graph& graph, std::span<const int32_t> tokens);

}  // namespace cleave::test
