// SPDX-License-Identifier: Apache-2.0
// What values say about positions, found by evaluating them at some. In: a value of the graph; out:
// whether it counts tokens or is a position, and where what depends on positions changes.
#pragma once

#include <cstdint>
#include <set>

#include "importer/onnx/recover/recovery.h"

namespace cleave::importer::from_onnx {

inline constexpr int64_t kProbedPositions[]{0, 1, 2, 3, 17, 100, 1000};

// Where to ask for what depends on the position: at some, and about the numbers that the value is
// computed from, where it may change.
std::set<int64_t> positions_to_ask(const Model& model, Ref value);

// The first position at which `holds(position)` is false: it is true at `good`, false at `bad`, and
// changes once between.
template <class Holds>
int64_t first_change(int64_t good, int64_t bad, Holds holds) {
    while (bad - good > 1) {
        const int64_t middle = good + (bad - good) / 2;
        (holds(middle) ? good : bad) = middle;
    }
    return bad;
}

// The value that a choice depending on positions (If) gives at the first ones, and how many
// positions it holds for (0: all). Any other value is itself.
Ref chosen_at_first(Recovery& r, Ref value, int64_t& holds_below);
// Whether every integer is the number of tokens before this step, or with it.
bool counts_tokens(Recovery& r, Ref value, bool with_new);
// Whether the integers end with the position of the last token.
bool row_at_is_position(Recovery& r, Ref value);

}  // namespace cleave::importer::from_onnx
