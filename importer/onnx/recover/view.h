// SPDX-License-Identifier: Apache-2.0
// How an ONNX tensor maps to a recovered operator's output. The output is [tokens, features]; each
// axis of the tensor is a list of factors: the batch, the tokens, the cached positions, or a piece
// of the features with its stride. So Reshape, Transpose, Unsqueeze, Slice and Expand only rewrite
// the factors, and a matcher sees what a tensor is, not which detour its exporter took.
//
// Sizes are pairs: what the dimension is in two scenarios that differ in batch, tokens and past. A
// dimension that is the same in both is a constant.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "importer/graph/graph.h"

namespace cleave::importer::from_onnx {

using TermId = Index<struct TermTag>;
using Size = std::array<int64_t, 2>;

struct Factor {
    enum Kind { kBatch, kTokens, kPast, kTotal, kFeature, kRepeat } kind = kFeature;
    Size size{1, 1};
    int64_t stride = 0;  // kFeature: between neighbours, in features
    bool is_constant() const { return size[0] == size[1]; }
    friend bool operator==(const Factor&, const Factor&) = default;
};

using Axis = std::vector<Factor>;

struct View {
    TermId term;
    int64_t offset = 0;  // first feature
    double scale = 1.0;  // every element is multiplied by it
    std::vector<Axis> axes;
    friend bool operator==(const View&, const View&) = default;
};

Size axis_size(const Axis& axis);
std::vector<Size> view_sizes(const View& view);

// [batch, tokens, features].
View whole_view(TermId term, int64_t features, Size batch, Size tokens);

// Each gives nothing when the result is no list of factors.
std::optional<View> reshaped(const View& view, const std::vector<Size>& sizes);
std::optional<View> transposed(const View& view, const std::vector<int64_t>& perm);
std::optional<View> sliced(const View& view, size_t axis, int64_t start, int64_t size,
                           int64_t step);
// `low` then `high` along an axis: the same piece of a term at two offsets.
std::optional<View> concatenated(const View& low, const View& high, size_t axis);
std::optional<View> expanded(const View& view, const std::vector<Size>& sizes);

// All factors but batch, tokens and past, merged where neighbours are contiguous.
std::vector<Factor> feature_factors(const View& view);

// The features [begin, end), when the view holds each exactly once and in order.
std::optional<Range> feature_range(const View& view);

// True when the view is rows of tokens: its last axis has all the features, in order, and the
// others are the batch and the tokens.
bool is_token_rows(const View& view);

bool is_only(const Axis& axis, Factor::Kind kind);
// The one contiguous feature factor (stride 1) that the axis consists of, or 0.
int64_t contiguous_features(const Axis& axis);

}  // namespace cleave::importer::from_onnx
