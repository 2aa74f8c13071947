// SPDX-License-Identifier: Apache-2.0
#include "importer/onnx/recover/view.h"

#include <algorithm>
#include <utility>

namespace cleave::importer::from_onnx {
namespace {

bool is_one(const Size& s) { return s[0] == 1 && s[1] == 1; }

// Drops factors of one element and joins neighbours that are one run of features.
Axis merged(const Axis& axis) {
    Axis out;
    for (const Factor& f : axis) {
        const bool kept = f.kind == Factor::kBatch || f.kind == Factor::kTokens;
        if (is_one(f.size) && !kept) continue;
        if (!out.empty()) {
            Factor& last = out.back();
            if (f.kind == Factor::kFeature && last.kind == Factor::kFeature &&
                last.stride == f.stride * f.size[0]) {
                last.size = {last.size[0] * f.size[0], last.size[1] * f.size[1]};
                last.stride = f.stride;
                continue;
            }
            if (f.kind == Factor::kRepeat && last.kind == Factor::kRepeat) {
                last.size = {last.size[0] * f.size[0], last.size[1] * f.size[1]};
                continue;
            }
        }
        out.push_back(f);
    }
    return out;
}

// Splits a factor of constant size into an outer part of `outer` elements and an inner one.
std::optional<std::pair<Factor, Factor>> split(const Factor& f, const Size& outer) {
    if (!f.is_constant() || outer[0] != outer[1] || outer[0] <= 0 || f.size[0] % outer[0] != 0)
        return std::nullopt;
    if (f.kind != Factor::kFeature && f.kind != Factor::kRepeat) return std::nullopt;
    Factor a = f, b = f;
    a.size = outer;
    const int64_t inner = f.size[0] / outer[0];
    b.size = {inner, inner};
    a.stride = f.stride * inner;
    return std::pair{a, b};
}

// A file of one token a call has it on any axis of size 1, and a reshape may move it past others:
// it is taken out...
std::optional<Factor> take_single_token(std::vector<Factor>& flat, size_t& place) {
    const auto token = std::find_if(flat.begin(), flat.end(), [](const Factor& f) {
        return f.kind == Factor::kTokens && is_one(f.size);
    });
    if (token == flat.end()) return std::nullopt;
    const Factor taken = *token;
    place = static_cast<size_t>(token - flat.begin());
    flat.erase(token);
    flat = merged(flat);
    return taken;
}

// ... and goes to an axis without anything else, or joins the first.
void put_single_token(View& view, const Factor& token) {
    auto axis =
        std::find_if(view.axes.begin(), view.axes.end(), [](const Axis& a) { return a.empty(); });
    if (axis == view.axes.end()) axis = view.axes.begin();
    if (axis != view.axes.end()) axis->push_back(token);
}

}  // namespace

Size axis_size(const Axis& axis) {
    Size s{1, 1};
    for (const Factor& f : axis) s = {s[0] * f.size[0], s[1] * f.size[1]};
    return s;
}

std::vector<Size> view_sizes(const View& view) {
    std::vector<Size> sizes;
    for (const Axis& axis : view.axes) sizes.push_back(axis_size(axis));
    return sizes;
}

View whole_view(TermId term, int64_t features, Size batch, Size tokens) {
    View v;
    v.term = term;
    v.axes = {{{Factor::kBatch, batch, 0}},
              {{Factor::kTokens, tokens, 0}},
              merged({{Factor::kFeature, {features, features}, 1}})};
    return v;
}

std::optional<View> reshaped(const View& view, const std::vector<Size>& sizes) {
    std::vector<Factor> flat;
    for (const Axis& axis : view.axes) flat.insert(flat.end(), axis.begin(), axis.end());
    flat = merged(flat);
    size_t place = 0;
    std::optional<Factor> token = take_single_token(flat, place);
    View out = view;
    out.axes.clear();
    size_t next = 0;
    for (Size rest : sizes) {
        Axis axis;
        // A batch that the file fixes to 1 keeps its place.
        if (is_one(rest) && next < flat.size() && flat[next].kind == Factor::kBatch &&
            is_one(flat[next].size))
            axis.push_back(flat[next++]);
        else if (is_one(rest) && token && next == place)
            axis.push_back(*std::exchange(token, std::nullopt));
        while (!is_one(rest)) {
            if (next == flat.size() || rest[0] <= 0 || rest[1] <= 0) return std::nullopt;
            Factor& f = flat[next];
            if (f.size[0] <= 0 || f.size[1] <= 0) return std::nullopt;  // of nothing
            if (rest[0] % f.size[0] == 0 && rest[1] % f.size[1] == 0) {
                axis.push_back(f);
                rest = {rest[0] / f.size[0], rest[1] / f.size[1]};
                ++next;
            } else if (auto parts = split(f, rest)) {
                axis.push_back(parts->first);
                f = parts->second;
                rest = {1, 1};
            } else {
                return std::nullopt;
            }
        }
        out.axes.push_back(merged(axis));
    }
    if (next != flat.size() || (token && sizes.empty())) return std::nullopt;
    if (token) put_single_token(out, *token);
    return out;
}

std::optional<View> transposed(const View& view, const std::vector<int64_t>& perm) {
    if (perm.size() != view.axes.size()) return std::nullopt;
    View out = view;
    std::vector<bool> used(perm.size());
    for (size_t i = 0; i < perm.size(); ++i) {
        if (perm[i] < 0 || perm[i] >= static_cast<int64_t>(perm.size()) || used[perm[i]])
            return std::nullopt;
        used[perm[i]] = true;
        out.axes[i] = view.axes[perm[i]];
    }
    return out;
}

std::optional<View> sliced(const View& view, size_t axis, int64_t start, int64_t size,
                           int64_t step) {
    if (axis >= view.axes.size() || view.axes[axis].size() != 1 || step <= 0) return std::nullopt;
    View out = view;
    Factor& f = out.axes[axis][0];
    if (f.kind != Factor::kFeature || start < 0 || size <= 0 ||
        start + (size - 1) * step >= f.size[0])
        return std::nullopt;
    out.offset += start * f.stride;
    f.size = {size, size};
    f.stride *= step;
    out.axes[axis] = merged(out.axes[axis]);
    return out;
}

std::optional<View> concatenated(const View& low, const View& high, size_t axis) {
    const int64_t distance = high.offset - low.offset;
    if (low.term != high.term || low.scale != high.scale || distance <= 0 ||
        axis >= low.axes.size() || low.axes.size() != high.axes.size())
        return std::nullopt;
    const Axis &a = low.axes[axis], &b = high.axes[axis];
    for (size_t i = 0; i < low.axes.size(); ++i)
        if (i != axis && !(low.axes[i] == high.axes[i])) return std::nullopt;
    const auto features = [](const Factor& f) { return f.kind == Factor::kFeature; };
    if (!std::all_of(a.begin(), a.end(), features)) return std::nullopt;
    View out = low;
    if (a == b) {
        out.axes[axis].insert(out.axes[axis].begin(), {Factor::kFeature, {2, 2}, distance});
    } else {
        // Unequal lengths of one run.
        const bool run = a.size() == 1 && b.size() <= 1 && distance == a[0].size[0] * a[0].stride &&
                         (b.empty() || (features(b[0]) && b[0].stride == a[0].stride));
        if (!run) return std::nullopt;
        const int64_t n = a[0].size[0] + (b.empty() ? 1 : b[0].size[0]);
        out.axes[axis][0].size = {n, n};
    }
    out.axes[axis] = merged(out.axes[axis]);
    return out;
}

std::optional<View> expanded(const View& view, const std::vector<Size>& sizes) {
    if (sizes.size() < view.axes.size()) return std::nullopt;
    for (const Size& s : sizes)
        if (s[0] <= 0 || s[1] <= 0) return std::nullopt;
    View out = view;
    out.axes.insert(out.axes.begin(), sizes.size() - view.axes.size(), Axis{});
    for (size_t i = 0; i < sizes.size(); ++i) {
        if (axis_size(out.axes[i]) == sizes[i]) continue;
        if (!is_one(axis_size(out.axes[i]))) return std::nullopt;
        out.axes[i] = {{Factor::kRepeat, sizes[i], 0}};
    }
    return out;
}

std::vector<Factor> feature_factors(const View& view) {
    std::vector<Factor> factors;
    for (const Axis& axis : view.axes)
        for (const Factor& f : axis)
            if (f.kind == Factor::kFeature || f.kind == Factor::kRepeat) factors.push_back(f);
    return merged(factors);
}

std::optional<Range> feature_range(const View& view) {
    const std::vector<Factor> factors = feature_factors(view);
    if (factors.empty()) return Range{view.offset, view.offset + 1};
    if (factors.size() != 1 || factors[0].kind != Factor::kFeature || factors[0].stride != 1)
        return std::nullopt;
    return Range{view.offset, view.offset + factors[0].size[0]};
}

bool is_token_rows(const View& view) {
    if (view.axes.empty() || !feature_range(view)) return false;
    for (size_t i = 0; i + 1 < view.axes.size(); ++i)
        for (const Factor& f : view.axes[i])
            if (f.kind != Factor::kBatch && f.kind != Factor::kTokens) return false;
    for (const Factor& f : view.axes.back())
        if (f.kind != Factor::kFeature) return false;
    return true;
}

bool is_only(const Axis& axis, Factor::Kind kind) {
    return axis.size() == 1 && axis[0].kind == kind;
}

int64_t contiguous_features(const Axis& axis) {
    if (axis.empty()) return 1;
    return is_only(axis, Factor::kFeature) && axis[0].stride == 1 ? axis[0].size[0] : 0;
}

}  // namespace cleave::importer::from_onnx
