// SPDX-License-Identifier: Apache-2.0
// The elementwise operators that a launch computes behind its own. In: a step's operators. Out: a
// Epilogue and its arguments; of an Epilogue, the part of a Config that computes it
// (templates/gpu/epilogue.cuh, templates/host/epilogue.h).
#pragma once

#include <vector>

#include "codegen/lower/step_reader.h"
#include "codegen/text/stub_writer.h"

namespace cleave::codegen {

// Operators [first, ...) of the step, each of which reads the one before it; the first reads
// `value`, which has the columns of the step's output. Appends an argument for each operand from
// outside.
Epilogue read_epilogue(const StepReader& step, size_t first, importer::ValueId value,
                       std::vector<Arg>& args);

// Config's kEpilogue, kOthers and epilogue(), and the operands as arguments other[0], other[1], ..:
// behind all others.
void write_host_epilogue(StubWriter& w, const Epilogue& epilogue);
void write_gpu_epilogue(StubWriter& w, const Epilogue& epilogue, std::string_view x_pointer);

// The largest number that divides the strides and offsets of an epilogue's operands; 0 where it has
// none.
int64_t epilogue_alignment(const Epilogue& epilogue);

}  // namespace cleave::codegen
