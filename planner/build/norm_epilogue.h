// SPDX-License-Identifier: Apache-2.0
// The RmsNorm that an all-reduce over peer memory computes behind its residual, in place of the
// launch that reads the sum. In: an analysed graph and a group whose partial sum is reduced; out:
// which later group gives its norm away, and what is left of that group. Invariant: every member
// has whole rows of the sum and the norm's whole weight, so each computes what the launch would
// have computed, once.
#pragma once

#include "planner/analysis/analysis.h"

namespace cleave::planner {

// Of the groups behind `sum` and before `end`, all of one stage: the first that begins with a
// RmsNorm over whole rows of the sum with its residual, rows that a block of the exchange's kernel
// can hold. -1: none.
int reader_of_norm(const Analysis& analysis, const Workload& workload, int sum, int end);

// `group` without the RmsNorm that it begins with: it reads what that made.
FusedGroup without_norm(const Graph& graph, const FusedGroup& group);

}  // namespace cleave::planner
