// SPDX-License-Identifier: Apache-2.0
// What a launch computes and moves, as functions of the batch: operations, weight bytes, activation
// and KV bytes. From shapes alone; the same figures score candidates and are in the plan's steps.
#pragma once

#include "planner/analysis/analysis.h"

namespace cleave::planner {

struct LaunchAmounts {
    Amount flops, weight_bytes, activation_bytes;
};

// Amounts of `group` with `work` of its units (of group.split.work; KV heads follow from query
// heads). Whole groups ignore `work`. The epilogue is counted when `with_epilogue`.
LaunchAmounts launch_amounts(const Analysis& analysis, const FusedGroup& group, Range work,
                             const Workload& workload, bool with_epilogue);

// Bytes of `features` elements of a value per row, as an Amount over its rows.
Amount value_bytes(const importer::Value& value, int64_t features, const Workload& workload);

Amount operator+(const Amount& a, const Amount& b);
Amount operator*(const Amount& a, int64_t n);

// At what pass a phase is costed.
PassPoint prefill_point(const Workload& workload);  // an average chunk of the prompt
PassPoint decode_point(const Workload& workload);   // at past = workload.decode_past()
int64_t num_prefill_passes(const Workload& workload);

// A weight's piece for `work` units of an operator: rows and columns of the logical matrix.
struct WeightBox {
    Range rows, columns;
};
WeightBox weight_box(const importer::Weight& weight, const OpSplit& split, Range work);

}  // namespace cleave::planner
