// SPDX-License-Identifier: Apache-2.0
// What a launch computes and moves, as functions of the batch: operations, weight bytes, activation
// and KV bytes. From shapes alone; the same figures score candidates and stand in the plan's steps.
#pragma once

#include "planner/analysis/placement.h"

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

// What one pass of a phase sees.
struct BatchPoint {
    int64_t num_tokens = 0, num_outputs = 0, num_keys = 0;
};
BatchPoint prefill_point(const Workload& workload);  // an average chunk of the prompt
BatchPoint decode_point(const Workload& workload);   // at past = workload.decode_past()
int64_t num_prefill_passes(const Workload& workload);

inline int64_t at(const Amount& amount, const BatchPoint& p) {
    return amount.at(p.num_tokens, p.num_outputs, p.num_keys);
}

// Where a weight's piece for `work` units of an operator lies: rows and columns of the logical
// matrix.
struct WeightBox {
    Range rows, columns;
};
WeightBox weight_box(const importer::Weight& weight, const OpSplit& split, Range work);

}  // namespace cleave::planner
