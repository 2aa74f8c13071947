// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "planner/verify/report.h"

namespace cleave::planner::verify {

bool RangeSet::add(Range range) {
    if (range.empty()) return false;
    bool twice = overlaps(range);
    auto first =
        std::find_if(ranges_.begin(), ranges_.end(), [&](Range r) { return r.end >= range.begin; });
    auto last = first;
    for (; last != ranges_.end() && last->begin <= range.end; ++last) {
        range.begin = std::min(range.begin, last->begin);
        range.end = std::max(range.end, last->end);
    }
    ranges_.insert(ranges_.erase(first, last), range);
    return twice;
}

bool RangeSet::covers(Range range) const {
    if (range.empty()) return true;
    return std::any_of(ranges_.begin(), ranges_.end(), [&](Range r) { return contains(r, range); });
}

bool RangeSet::overlaps(Range range) const {
    return std::any_of(ranges_.begin(), ranges_.end(),
                       [&](Range r) { return verify::overlaps(r, range); });
}

bool cover_whole(const std::vector<Rectangle>& rectangles, Range rows, Range columns) {
    std::vector<int64_t> cuts{rows.begin, rows.end};
    for (const Rectangle& r : rectangles) {
        cuts.push_back(std::clamp(r.rows.begin, rows.begin, rows.end));
        cuts.push_back(std::clamp(r.rows.end, rows.begin, rows.end));
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
        RangeSet covered;  // of the columns, in the rows between two cuts
        for (const Rectangle& r : rectangles)
            if (contains(r.rows, {cuts[i], cuts[i + 1]})) covered.add(r.columns);
        if (!covered.covers(columns)) return false;
    }
    return true;
}

Range whole_columns(const Graph& graph, ValueId value) {
    const auto& shape = graph.value(value).shape;
    if (shape.size() < 2) return {0, 1};
    return {0, shape.back().is_static() ? shape.back().value : kWhole};
}

Range columns_of(const PlacedValue& placed) {
    return placed.box.size() < 2 ? Range{0, 1} : placed.box.back();
}

DType placed_dtype(const Plan& plan, ValueId value) {
    const importer::Value& v = plan.graph.value(value);
    switch (v.kind) {
        case importer::ValueKind::kTokenIds: return DType::kInt32;
        case importer::ValueKind::kLogits: return DType::kF32;
        case importer::ValueKind::kActivation: return plan.workload.activation_dtype;
        default: return v.dtype;
    }
}

int64_t placed_bytes(const Plan& plan, const PlacedValue& placed, bool is_prefill) {
    const Workload& w = plan.workload;
    int64_t elements = 1;
    const auto& shape = plan.graph.value(placed.value).shape;
    for (size_t i = 0; i < shape.size() && i < placed.box.size(); ++i) {
        if (placed.box[i].end != kWhole) {
            elements = product({elements, placed.box[i].size()});
            continue;
        }
        int64_t whole = 0;
        switch (rows_of(shape[i])) {
            case Rows::kNone: whole = shape[i].value; break;
            case Rows::kTokens: whole = is_prefill ? w.max_tokens() : w.batch; break;
            case Rows::kOutputs: whole = is_prefill ? w.max_outputs() : w.batch; break;
            case Rows::kSequences: return -1;
        }
        elements = product({elements, whole});
    }
    return bytes_of(placed_dtype(plan, placed.value), elements);
}

int64_t product(std::initializer_list<int64_t> factors) {
    int64_t all = 1;
    for (const int64_t factor : factors)
        if (__builtin_mul_overflow(all, factor, &all)) return INT64_MAX;
    return all;
}

int64_t sum(int64_t a, int64_t b) {
    int64_t all = 0;
    return __builtin_add_overflow(a, b, &all) ? INT64_MAX : all;
}

int64_t bytes_of(DType dtype, int64_t elements) {
    return elements > INT64_MAX / 128 ? INT64_MAX : dtype_bytes(dtype, elements);
}

std::string range_text(Range range) {
    if (range.end == kWhole) return fmt::format("[{}, whole)", range.begin);
    return fmt::format("[{}, {})", range.begin, range.end);
}

}  // namespace cleave::planner::verify
