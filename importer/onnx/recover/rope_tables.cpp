// SPDX-License-Identifier: Apache-2.0
#include "importer/onnx/recover/rope_tables.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "importer/onnx/recover/positions.h"

namespace cleave::importer::from_onnx {
namespace {

// The nearest node of one of `ops` that `value` is computed from, searching through constants'
// nodes.
const Node* find_upstream(const Model& model, Ref value, std::string_view op) {
    std::set<Ref> seen;
    std::vector<Ref> stack{value};
    while (!stack.empty()) {
        const Ref v = stack.back();
        stack.pop_back();
        const Node* node = model.producer_of(v);
        if (!node || !seen.insert(v).second) continue;
        if (node->is(op)) return node;
        stack.insert(stack.end(), node->in.begin(), node->in.end());
    }
    return nullptr;
}

// Frequencies that change before this many positions are no model's.
constexpr int64_t kShortestContext = 4;

struct Rows {
    std::vector<double> cos, sin;
};

// Whether the two entries of each pair of features are alike.
bool pairs_alike(const Rows& r, int64_t half, bool interleaved) {
    for (int64_t i = 0; i < half; ++i) {
        const int64_t a = interleaved ? 2 * i : i, b = interleaved ? 2 * i + 1 : i + half;
        if (r.cos[a] != r.cos[b] || r.sin[a] != r.sin[b]) return false;
    }
    return true;
}

// One entry for each pair.
Rows one_for_each_pair(const Rows& r, int64_t half, bool interleaved) {
    Rows out;
    for (int64_t i = 0; i < half; ++i) {
        out.cos.push_back(r.cos[interleaved ? 2 * i : i]);
        out.sin.push_back(r.sin[interleaved ? 2 * i : i]);
    }
    return out;
}

// cos and sin of one table at any position.
class Angles {
public:
    Angles(Recovery& r, Ref cos, Ref sin, int64_t width, bool doubled, bool interleaved)
        : r_(r),
          cos_(cos),
          sin_(sin),
          width_(width),
          half_(doubled ? width / 2 : width),
          doubled_(doubled),
          interleaved_(interleaved) {}

    // One entry for each pair; nothing when it cannot be evaluated.
    std::optional<Rows> row(int64_t position) const {
        auto c = r_.row_at(cos_, position, width_), s = r_.row_at(sin_, position, width_);
        if (!c || !s || static_cast<int64_t>(c->size()) != width_ || s->size() != c->size())
            return std::nullopt;
        Rows rows{*c, *s};
        if (!doubled_) return rows;
        if (!pairs_alike(rows, half_, interleaved_)) return std::nullopt;
        return one_for_each_pair(rows, half_, interleaved_);
    }

    bool is(const RopeTable& t, int64_t position) const {
        const auto r = row(position);
        const double p = static_cast<double>(position), tolerance = 1e-5 + 1e-6 * p;
        for (int64_t i = 0; r && i < half_; ++i) {
            const double a = p * t.frequencies[i];
            if (std::fabs(r->cos[i] - t.magnitude * std::cos(a)) > tolerance ||
                std::fabs(r->sin[i] - t.magnitude * std::sin(a)) > tolerance)
                return false;
        }
        return r.has_value();
    }

    int64_t half() const { return half_; }

private:
    Recovery& r_;
    Ref cos_, sin_;
    int64_t width_, half_;
    bool doubled_, interleaved_;
};

// Whether the first, the last and some positions between have a row.
bool pairs_turn_alike(const Angles& angles, int64_t positions) {
    std::set<int64_t> asked(std::begin(kProbedPositions), std::end(kProbedPositions));
    asked.insert(positions - 1);
    return std::all_of(asked.begin(), asked.end(),
                       [&](int64_t p) { return p >= positions || angles.row(p).has_value(); });
}

// Frequencies computed by the graph, from the angle whose cosine it takes.
std::optional<RopeTable> computed_table(Recovery& r, const Angles& angles, Ref cos,
                                        std::string& why) {
    const Node* cosine = find_upstream(r.model, cos, "Cos");
    const int64_t half = angles.half();
    const auto angle = r.row_at(cosine->input(0), 1);
    const auto start = angles.row(0), one = angles.row(1);
    if (!angle || !start || !one) {
        why = "its frequencies cannot be evaluated";
        return std::nullopt;
    }
    RopeTable table;
    table.rotary_dim = 2 * half;
    table.magnitude = start->cos[0];
    // There may be one angle for each pair, or two: side by side, or one sequence after the
    // other.
    const auto n = static_cast<int64_t>(angle->size());
    for (int64_t step = 1; step <= 2 && n >= step * half; ++step) {
        table.frequencies.clear();
        for (int64_t i = 0; i < half; ++i)
            table.frequencies.push_back(
                static_cast<float>((*angle)[static_cast<size_t>(step * i)]));
        if (angles.is(table, 1)) break;
    }
    if (table.frequencies.empty()) {
        why = "its frequencies cannot be evaluated";
        return std::nullopt;
    }
    int64_t good = -1;
    for (int64_t p : positions_to_ask(r.model, cos)) {
        if (r.beyond_file(p) || (!r.has_past && p > kLongestSequence)) break;
        if (angles.is(table, p)) {
            good = p;
            continue;
        }
        if (good < 1) {
            why =
                fmt::format("its cos and sin at position {} are not those of fixed frequencies", p);
            return std::nullopt;
        }
        table.max_positions =
            first_change(good, p, [&](int64_t at) { return angles.is(table, at); });
        break;
    }
    if (table.max_positions > 0 && table.max_positions < kShortestContext) {
        why = fmt::format("its cos and sin at position {} are not those of fixed frequencies",
                          table.max_positions);
        return std::nullopt;
    }
    return table;
}

// Older transformers cut their tables to the tokens so far, table[:kv_seq_len], before rows are
// picked. A position that the cut has is the same row of the whole table; the cut must have every
// position that is asked for.
const WeightView* table_of_rows(Recovery& r, Ref rows) {
    Ref from = rows;
    while (!r.get<WeightView>(from)) {
        const Node* node = r.model.producer_of(from);
        if (!node) return nullptr;
        const bool cut =
            node->is("Slice") && r.integers(node->input(1)) == std::vector<int64_t>{0} &&
            (node->input(3) == kNone || r.integers(node->input(3)) == std::vector<int64_t>{0}) &&
            (node->input(4) == kNone || r.number(node->input(4)) == 1.0);
        if (!cut && !node->is("Cast") && !node->is("Identity")) return nullptr;
        from = node->input(0);
    }
    const WeightView* table = r.get<WeightView>(from);
    const int64_t count = table->rows.size();
    for (int64_t p : {int64_t{0}, int64_t{1}, int64_t{7}, count - 1}) {
        if (from == rows || p >= count || r.beyond_file(p) || (!r.has_past && p > kLongestSequence))
            continue;
        Probe probe = r.make_probe(r.at_position(p));
        const Dims* dims = probe.shape(rows);
        if (!dims || dims->empty() || dims->front() <= p) return nullptr;
    }
    return table;
}

// Their first entries: one for each pair.
RopeTableId rows_of_half(Recovery& r, WeightView cos, WeightView sin, int64_t half) {
    if (cos.columns.size() < half || sin.columns.size() < half) return {};
    cos.columns.end = cos.columns.begin + half;
    sin.columns.end = sin.columns.begin + half;
    return r.rope_tables.stored(cos, sin);
}

RopeTableId folded_table(Recovery& r, Ref cos, Ref sin, int64_t half) {
    const WeightView *c = r.get<WeightView>(cos), *s = r.get<WeightView>(sin);
    if (!c || !s || !is_row_for_each_token(r, *c) || !is_row_for_each_token(r, *s)) return {};
    return rows_of_half(r, *c, *s, half);
}

// Rows of two constants, picked by position.
RopeTableId gathered_table(Recovery& r, Ref cos, Ref sin, int64_t half) {
    const Node *gc = find_upstream(r.model, cos, "Gather"),
               *gs = find_upstream(r.model, sin, "Gather");
    const WeightView *c = gc ? table_of_rows(r, gc->input(0)) : nullptr,
                     *s = gs ? table_of_rows(r, gs->input(0)) : nullptr;
    if (!c || !s || c->vector || s->vector || !row_at_is_position(r, gc->input(1)) ||
        !row_at_is_position(r, gs->input(1)))
        return {};
    return rows_of_half(r, *c, *s, half);
}

}  // namespace

bool is_row_for_each_token(const Recovery& r, const WeightView& table) {
    return !table.vector && !table.transposed && !table.added && !r.has_past &&
           r.fixed_tokens > 1 && table.rows == Range{0, r.fixed_tokens};
}

RopeTableId RopeTables::stored(const WeightView& cos, const WeightView& sin) {
    for (size_t i = 0; i < entries_.size(); ++i)
        if (entries_[i].table.frequencies.empty() && entries_[i].cos == cos &&
            entries_[i].sin == sin)
            return RopeTableId(i);
    RopeTable t;
    t.rotary_dim = 2 * cos.columns.size();
    t.max_positions = cos.rows.size();
    entries_.push_back({std::move(t), cos, sin});
    return RopeTableId(entries_.size() - 1);
}

RopeTableId RopeTables::computed(RopeTable table) {
    for (size_t i = 0; i < entries_.size(); ++i)
        if (entries_[i].table.frequencies == table.frequencies &&
            entries_[i].table.magnitude == table.magnitude)
            return RopeTableId(i);
    entries_.push_back({std::move(table), {}, {}});
    return RopeTableId(entries_.size() - 1);
}

RopeTableId RopeTables::find(Ref cos, Ref sin, int64_t width, bool for_each_feature,
                             bool interleaved, std::string& why) {
    const auto key = std::tuple(cos, sin, width, for_each_feature, interleaved);
    if (auto found = found_.find(key); found != found_.end()) return found->second;
    const Angles angles(r_, cos, sin, width, for_each_feature, interleaved);
    if (for_each_feature && width % 2 != 0) {
        why = "an odd number of features cannot turn in pairs";
        return {};
    }
    if (!r_.row_at(cos, 1, width)) {
        why = "its cos and sin cannot be evaluated at a position" + r_.blocked_by(cos);
        return {};
    }
    if (!angles.row(1)) {
        why = "the two features of a pair turn by different angles";
        return {};
    }
    if (!find_upstream(r_.model, cos, "Cos")) {
        RopeTableId stored;
        if (!(interleaved && for_each_feature)) {
            if (r_.fixed_tokens > 1 && !r_.has_past && pairs_turn_alike(angles, r_.fixed_tokens))
                stored = folded_table(r_, cos, sin, angles.half());
            if (!stored.valid()) stored = gathered_table(r_, cos, sin, angles.half());
        }
        if (!stored.valid())
            why = "its cos and sin are neither computed from frequencies nor rows of a table";
        else
            found_[key] = stored;
        return stored;
    }
    auto table = computed_table(r_, angles, cos, why);
    return table ? found_[key] = computed(std::move(*table)) : RopeTableId();
}

}  // namespace cleave::importer::from_onnx
