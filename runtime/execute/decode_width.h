// SPDX-License-Identifier: Apache-2.0
// Widths of captured decode. A capture is of one number of rows, and a server's numbers wander: a
// pass of fewer rows is filled up to one of a few widths, so that each is captured once. In: a
// decode pass that check_batch and check_blocks have passed. Out: the same pass with further rows
// behind its own, of token 0 at position 0 of a slot that the pass does not have and whose row of
// the block table is 0 for it: they write to block 0, which is nobody's, and read what they wrote.
// The results of the pass's own rows do not change; those of the others are nobody's.
#pragma once

#include <cstdint>

#include "planner/plan/plan.h"
#include "runtime/execute/batch.h"

namespace cleave::runtime {

// The least of 1, 2, 4, 8, 16, 24, 32, ... and `most` that holds `rows`, which are `most` at most.
int64_t decode_width(int64_t rows, int64_t most);

// Whether further rows change no row of a pass, and have a block to write to. Not where numbers are
// quantised by the smallest and the largest of a whole pass (DynamicQuantizeLinear).
bool rows_are_independent(const planner::Plan& plan);

// Fills a decode pass up to its width, if each of its tokens is a sequence of its own and gives an
// output. Other passes stay as they are.
void fill_decode(Batch& batch, const planner::Plan& plan);

}  // namespace cleave::runtime
