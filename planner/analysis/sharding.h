// SPDX-License-Identifier: Apache-2.0
// In: a Graph. Out: for each operator and value, along what a tensor-parallel stage splits it. One
// table says what each kind of operator may split and what that does to its output and weights;
// everything that needs to know (fusion, shards, steps, memory, cost) asks here. Invariant: a value
// that no rule splits is whole on every device of its stage; a partial value is summed, and a
// gathered one put together, before anything reads it.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "planner/plan/plan.h"

namespace cleave::planner {

// What is counted when a dimension is split.
enum class Axis : uint8_t { kWhole, kQueryHeads, kKvHeads, kColumns, kVocabulary };

// A dimension as units: heads of head_dim features, columns, or rows of the vocabulary.
struct Split {
    Axis axis = Axis::kWhole;
    int64_t units = 0;      // in all
    int64_t unit_size = 1;  // features of one unit
    int64_t group = 1;      // query heads of one KV head, for both kinds of heads

    bool whole() const { return axis == Axis::kWhole; }
    // Whether pieces of one are pieces of the other: the same units, of any size.
    bool same_units(const Split& other) const {
        return axis == other.axis && units == other.units && group == other.group;
    }
    friend auto operator<=>(const Split&, const Split&) = default;
};

enum class WeightCut : uint8_t { kNone, kRows, kColumns };
// kPartial: each device makes a summand of the whole output. kGathered: each makes its columns, and
// gives them to all.
enum class SplitEffect : uint8_t { kWhole, kSplit, kPartial, kGathered };

// How an operator is split: `work` counts its pieces, `weight` says what is cut from its matrix.
struct OpSplit {
    Split work;
    WeightCut weight = WeightCut::kNone;
    SplitEffect effect = SplitEffect::kWhole;
};

// One line of the table.
struct SplitRule {
    importer::OpKind kind;
    Axis axis;
    WeightCut weight;
    SplitEffect effect;
};

struct GraphSplits {
    std::vector<OpSplit> ops;  // by OpId
    std::vector<Split>
        values;  // by ValueId, after partial sums have been added and columns gathered
};
// Where products round their activations (ComputeMode::kFast), or one its whole input, each has
// its input whole and its matrix cut by rows: every number is then that of one device. An
// arithmetic that is not settled (planner/search/check_options.h) is exact.
GraphSplits assign_splits(const Graph& graph, const Workload& workload);

// Features of a value's last dimension, or 0 where it is not a number.
int64_t last_dimension(const importer::Value& value);

// ---- Ranges

// Ranges of `units` in proportion to `weights`, whole multiples of `granule` but for the last, by
// the largest remainder; equal remainders go to the first. Their concatenation is [0, units); any
// may be empty.
std::vector<Range> split_units(int64_t units, int64_t granule, std::span<const int64_t> weights);

// How a stage's devices share its work. The ranges of a dimension depend on nothing else, so that
// an operator's pieces and its weights' always agree.
struct StageShares {
    std::vector<int64_t> weights;  // per device, relative speed
    bool whole_groups = true;      // heads by whole KV groups; else by query heads
    int64_t granule = 1;       // of columns and vocabulary; a quantisation block forces a multiple
    int64_t head_granule = 1;  // of query heads, likewise
    // Of a stage of a plan that exists (planner/build/placement_of.h): the ranges that it has.
    std::vector<std::pair<Split, std::vector<Range>>> known = {};

    size_t count() const { return weights.size(); }
};
std::vector<Range> ranges_of(const StageShares& shares, const Split& split);

}  // namespace cleave::planner
