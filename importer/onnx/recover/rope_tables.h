// SPDX-License-Identifier: Apache-2.0
// The tables of rotary angles that a graph's rotations use, each kept once. In: the values of cos
// and sin that a rotation multiplies by. Out: a table: position * frequency, or rows of two
// weights.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "importer/onnx/recover/term.h"

namespace cleave::importer::from_onnx {

class Recovery;

class RopeTables {
public:
    explicit RopeTables(Recovery& recovery) : r_(recovery) {}

    struct Entry {
        RopeTable table;
        WeightView cos, sin;  // the rows, where the table has no frequencies
    };
    Entry& operator[](RopeTableId id) { return entries_[id.index()]; }
    const Entry& operator[](RopeTableId id) const { return entries_[id.index()]; }

    // The table whose cos and sin those values are, at positions of the batch. Their rows have
    // `width` entries: one for each pair of features, or (`for_each_feature`) two alike for each,
    // side by side where the pairs are `interleaved`. Reason in `why` when there is none.
    RopeTableId find(Ref cos, Ref sin, int64_t width, bool for_each_feature, bool interleaved,
                     std::string& why);
    // Of rows that a file has.
    RopeTableId stored(const WeightView& cos, const WeightView& sin);

private:
    RopeTableId computed(RopeTable table);

    Recovery& r_;
    std::vector<Entry> entries_;
    std::map<std::tuple<Ref, Ref, int64_t, bool, bool>, RopeTableId> found_;
};

// A stored row for each token of a file without a past whose length is fixed: positions were folded
// into it.
bool is_row_for_each_token(const Recovery& r, const WeightView& table);

}  // namespace cleave::importer::from_onnx
