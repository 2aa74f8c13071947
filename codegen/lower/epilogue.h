// SPDX-License-Identifier: Apache-2.0
// The elementwise operators that a launch computes behind its own. In: a step's operators. Out: a
// Tail and its arguments; of a Tail, the part of a Config that computes it (templates/gpu/tail.cuh,
// templates/host/tail.h).
#pragma once

#include <vector>

#include "codegen/lower/step_reader.h"
#include "codegen/text/stub_writer.h"

namespace cleave::codegen {

// Operators [first, ...) of the step, each of which reads the one before it; the first reads
// `value`, which has the columns of the step's output. Appends an argument for each operand from
// outside.
Tail read_tail(const StepReader& step, size_t first, importer::ValueId value,
               std::vector<Arg>& args);

// Config's kTail, kOthers and tail(), and the operands as arguments other[0], other[1], ..: behind
// all others.
void write_host_tail(StubWriter& w, const Tail& tail);
void write_gpu_tail(StubWriter& w, const Tail& tail, std::string_view x_pointer);

// The largest number that divides the strides and offsets of a tail's operands; 0 where it has
// none.
int64_t tail_alignment(const Tail& tail);

}  // namespace cleave::codegen
