// SPDX-License-Identifier: Apache-2.0
// Queries times a number that depends on each token's position alone. Ministral 3 multiplies by
// 1 + beta * log(1 + floor(position / original length)), which is 1 up to that length: there it is
// a factor, and the context ends where it changes.
#include <algorithm>

#include "importer/onnx/recover/matchers.h"
#include "importer/onnx/recover/positions.h"

namespace cleave::importer::from_onnx {
namespace {

// A factor that changes before this many positions is no context's.
constexpr int64_t kShortestUnscaled = 16;

// One number for each token of `view`, the same for all its heads and features.
bool is_number_for_each_token(Recovery& r, const View& view, Ref value) {
    const auto sizes = r.sizes(value);
    if (!sizes || sizes->size() > view.axes.size()) return false;
    const size_t skipped = view.axes.size() - sizes->size();
    bool has_tokens = false;
    for (size_t i = 0; i < sizes->size(); ++i) {
        const Axis& axis = view.axes[i + skipped];
        const bool tokens = is_only(axis, Factor::kTokens) && (*sizes)[i] == axis_size(axis);
        const bool batch = is_only(axis, Factor::kBatch) && (*sizes)[i] == axis_size(axis);
        if (!tokens && !batch && (*sizes)[i] != Size{1, 1}) return false;
        has_tokens = has_tokens || tokens;
    }
    return has_tokens;
}

class ScaleAt {
public:
    ScaleAt(Recovery& r, Ref value) : r_(r), value_(value) {}
    std::optional<double> operator()(int64_t position) const {
        const auto row = r_.row_at(value_, position, 1);
        return row && row->size() == 1 ? std::optional(row->front()) : std::nullopt;
    }

private:
    Recovery& r_;
    Ref value_;
};

// The number of positions, from the first on, that have the scale of the first; 0: all that were
// asked.
std::optional<int64_t> positions_alike(Recovery& r, Ref value, const ScaleAt& scale) {
    const auto first = scale(0);
    if (!first) return std::nullopt;
    int64_t good = 0;
    for (int64_t p : positions_to_ask(r.model, value)) {
        if (r.beyond_file(p)) break;
        if (!r.has_past && p > kLongestSequence) return kLongestSequence;
        const auto here = scale(p);
        if (!here) return std::nullopt;
        if (*here == *first) {
            good = p;
            continue;
        }
        return first_change(good, p, [&](int64_t at) { return scale(at) == first; });
    }
    return 0;
}

}  // namespace

std::optional<Meaning> match_position_scale(Recovery& r, const Node& node) {
    if (!node.is("Mul") || node.in.size() != 2) return std::nullopt;
    for (int i : {0, 1}) {
        const View* x = r.get<View>(node.input(i));
        const Ref value = node.input(1 - i);
        if (!x || !r.is_known(value) || !is_number_for_each_token(r, *x, value)) continue;
        View scaled = *x;
        const ScaleAt scale(r, value);
        const auto alike = positions_alike(r, value, scale);
        if (!alike) continue;
        if (*alike > 0 && *alike < kShortestUnscaled)
            return unknown(r, node,
                           fmt::format("its factor depends on the position, and changes at {}; one "
                                       "that changes only beyond {} tokens is supported",
                                       *alike, kShortestUnscaled));
        scaled.scale *= *scale(0);
        if (*alike > 0)
            r.scaled_alike = r.scaled_alike > 0 ? std::min(r.scaled_alike, *alike) : *alike;
        return scaled;
    }
    return std::nullopt;
}

}  // namespace cleave::importer::from_onnx
