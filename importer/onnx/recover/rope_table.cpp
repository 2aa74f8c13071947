// SPDX-License-Identifier: Apache-2.0
// Recovers position * frequency * magnitude from the values of cos and sin that a graph computes.
#include <algorithm>
#include <cmath>
#include <set>

#include "importer/onnx/recover/recovery.h"

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

const std::vector<int64_t> kProbedPositions{0, 1, 2, 3, 17, 100, 1000};
constexpr int64_t kLargestPosition = int64_t{1} << 24;
// Frequencies that change before this many positions are no model's.
constexpr int64_t kShortestContext = 4;

// Numbers that the value is computed from.
std::set<int64_t> numbers_upstream(const Model& model, Ref value) {
    std::set<int64_t> numbers;
    std::set<Ref> seen;
    std::vector<Ref> stack{value};
    while (!stack.empty()) {
        const Ref v = stack.back();
        stack.pop_back();
        if (v == kNone || !seen.insert(v).second) continue;
        if (const Constant* c = model.constant_of(v); c && c->count() <= 4)
            if (const auto t = read_constant(model, *c))
                for (int64_t i = 0; i < t->count(); ++i)
                    if (t->at(i) >= 16 && t->at(i) <= kLargestPosition)
                        numbers.insert(static_cast<int64_t>(t->at(i)));
        if (const Node* node = model.producer_of(v))
            stack.insert(stack.end(), node->in.begin(), node->in.end());
    }
    return numbers;
}

struct Rows {
    std::vector<double> cos, sin;
};

}  // namespace

std::set<int64_t> positions_to_ask(const Model& model, Ref value) {
    std::set<int64_t> positions(kProbedPositions.begin(), kProbedPositions.end());
    for (int64_t n : numbers_upstream(model, value)) positions.insert({n - 1, n, n + 1});
    return positions;
}

bool Recovery::counts_tokens(Ref value, bool with_new) {
    for (int i : {0, 1}) {
        const Scenario& s = probe(i).scenario();
        const Tensor* t = probe(i).data(value);
        const int64_t expected = s.past + (with_new ? s.tokens : 0);
        if (!t || t->real || t->count() == 0 ||
            std::any_of(t->integers.begin(), t->integers.end(),
                        [&](int64_t n) { return n != expected; }))
            return false;
    }
    return true;
}

bool Recovery::row_at_is_position(Ref value) {
    for (int64_t p : {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{1000}}) {
        if (beyond_file(p)) break;
        Probe probe =
            make_probe(possible(has_past ? Scenario{1, 1, p, {}} : Scenario{1, p + 1, 0, {}}));
        const Tensor* t = probe.data(value);
        const int64_t rows = probe.scenario().tokens, from_end = has_past ? rows : rows - p;
        if (!t || t->real || t->count() < from_end || t->integers[t->count() - from_end] != p)
            return false;
    }
    return true;
}

RopeTableId Recovery::stored_rope_table(const WeightView& cos, const WeightView& sin) {
    for (size_t i = 0; i < rope_tables.size(); ++i)
        if (rope_weights[i].first == cos && rope_weights[i].second == sin &&
            rope_tables[i].frequencies.empty())
            return RopeTableId(i);
    RopeTable t;
    t.rotary_dim = 2 * cos.columns.size();
    t.max_positions = cos.rows.size();
    rope_tables.push_back(t);
    rope_weights.emplace_back(cos, sin);
    return RopeTableId(rope_tables.size() - 1);
}

namespace {

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
    std::set<int64_t> asked(kProbedPositions.begin(), kProbedPositions.end());
    asked.insert(positions - 1);
    return std::all_of(asked.begin(), asked.end(),
                       [&](int64_t p) { return p >= positions || angles.row(p).has_value(); });
}

}  // namespace

// Frequencies computed by the graph, from the angle whose cosine it takes.
std::optional<RopeTable> Recovery::computed_rope_table(Ref cos, Ref sin, int64_t width,
                                                       bool for_each_feature, bool interleaved,
                                                       std::string& why) {
    const Angles angles(*this, cos, sin, width, for_each_feature, interleaved);
    const Node* cosine = find_upstream(model, cos, "Cos");
    const int64_t half = angles.half();
    const auto angle = row_at(cosine->input(0), 1);
    const auto start = angles.row(0), one = angles.row(1);
    if (!angle || !start || !one) {
        why = "its frequencies cannot be evaluated";
        return std::nullopt;
    }
    RopeTable table;
    table.rotary_dim = 2 * half;
    table.magnitude = start->cos[0];
    // The angles may stand once for each pair, or twice: side by side, or one sequence after the
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
    for (int64_t p : positions_to_ask(model, cos)) {
        if (beyond_file(p) || (!has_past && p > kLongestSequence)) break;
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
const WeightView* Recovery::table_of_rows(Ref rows) {
    Ref from = rows;
    while (!get<WeightView>(from)) {
        const Node* node = model.producer_of(from);
        if (!node) return nullptr;
        const bool cut =
            node->is("Slice") && integers(node->input(1)) == std::vector<int64_t>{0} &&
            (node->input(3) == kNone || integers(node->input(3)) == std::vector<int64_t>{0}) &&
            (node->input(4) == kNone || number(node->input(4)) == 1.0);
        if (!cut && !node->is("Cast") && !node->is("Identity")) return nullptr;
        from = node->input(0);
    }
    const WeightView* table = get<WeightView>(from);
    const int64_t count = table->rows.size();
    for (int64_t p : {int64_t{0}, int64_t{1}, int64_t{7}, count - 1}) {
        if (from == rows || p >= count || beyond_file(p) || (!has_past && p > kLongestSequence))
            continue;
        Probe probe =
            make_probe(possible(has_past ? Scenario{1, 1, p, {}} : Scenario{1, p + 1, 0, {}}));
        const Dims* dims = probe.shape(rows);
        if (!dims || dims->empty() || dims->front() <= p) return nullptr;
    }
    return table;
}

bool Recovery::is_row_for_each_token(const WeightView& table) const {
    return !table.vector && !table.transposed && !table.added && !has_past && fixed_tokens > 1 &&
           table.rows == Range{0, fixed_tokens};
}

RopeTableId Recovery::folded_rope_table(Ref cos, Ref sin, int64_t half) {
    const WeightView *wc = get<WeightView>(cos), *ws = get<WeightView>(sin);
    if (!wc || !ws || !is_row_for_each_token(*wc) || !is_row_for_each_token(*ws) ||
        wc->columns.size() < half || ws->columns.size() < half)
        return {};
    WeightView c = *wc, s = *ws;
    c.columns.end = c.columns.begin + half;
    s.columns.end = s.columns.begin + half;
    return stored_rope_table(c, s);
}

// Rows of two constants, picked by position.
RopeTableId Recovery::gathered_rope_table(Ref cos, Ref sin, int64_t half) {
    const Node *gc = find_upstream(model, cos, "Gather"), *gs = find_upstream(model, sin, "Gather");
    const WeightView *wc = gc ? table_of_rows(gc->input(0)) : nullptr,
                     *ws = gs ? table_of_rows(gs->input(0)) : nullptr;
    if (!wc || !ws || wc->vector || ws->vector || !row_at_is_position(gc->input(1)) ||
        !row_at_is_position(gs->input(1)) || wc->columns.size() < half || ws->columns.size() < half)
        return {};
    WeightView c = *wc, s = *ws;
    c.columns.end = c.columns.begin + half;
    s.columns.end = s.columns.begin + half;
    return stored_rope_table(c, s);
}

Ref Recovery::chosen_at_first(Ref value, int64_t& holds_below) {
    holds_below = 0;
    const Node* node = model.producer_of(value);
    if (!node || !node->is("If") || node->in.size() != 3) return value;
    const auto truth = [&](int64_t p) -> std::optional<bool> {
        Probe probe =
            make_probe(possible(has_past ? Scenario{1, 1, p, {}} : Scenario{1, p + 1, 0, {}}));
        const Tensor* t = probe.data(node->input(0));
        if (!t || t->count() != 1) return std::nullopt;
        return t->at(0) != 0;
    };
    const auto first = truth(0);
    if (!first) return value;
    int64_t good = 0;
    for (int64_t p : positions_to_ask(model, node->input(0))) {
        if (truth(p) == first) {
            good = p;
            continue;
        }
        holds_below = first_change(good, p, [&](int64_t at) { return truth(at) == first; });
        break;
    }
    return node->input(*first ? 1 : 2);
}

RopeTableId Recovery::rope_table(Ref cos, Ref sin, int64_t width, bool for_each_feature,
                                 bool interleaved, std::string& why) {
    const auto key = std::tuple(cos, sin, width, for_each_feature, interleaved);
    if (auto found = tables_.find(key); found != tables_.end()) return found->second;
    const Angles angles(*this, cos, sin, width, for_each_feature, interleaved);
    if (for_each_feature && width % 2 != 0) {
        why = "an odd number of features cannot turn in pairs";
        return {};
    }
    if (!row_at(cos, 1, width)) {
        why = "its cos and sin cannot be evaluated at a position" + blocked_by(cos);
        return {};
    }
    if (!angles.row(1)) {
        why = "the two features of a pair turn by different angles";
        return {};
    }
    if (!find_upstream(model, cos, "Cos")) {
        RopeTableId stored;
        if (!(interleaved && for_each_feature)) {
            if (fixed_tokens > 1 && !has_past && pairs_turn_alike(angles, fixed_tokens))
                stored = folded_rope_table(cos, sin, angles.half());
            if (!stored.valid()) stored = gathered_rope_table(cos, sin, angles.half());
        }
        if (!stored.valid())
            why = "its cos and sin are neither computed from frequencies nor rows of a table";
        else
            tables_[key] = stored;
        return stored;
    }
    const auto table = computed_rope_table(cos, sin, width, for_each_feature, interleaved, why);
    if (!table) return {};
    for (size_t i = 0; i < rope_tables.size(); ++i)
        if (rope_tables[i].frequencies == table->frequencies &&
            rope_tables[i].magnitude == table->magnitude)
            return tables_[key] = RopeTableId(i);
    rope_tables.push_back(*table);
    rope_weights.emplace_back();
    return tables_[key] = RopeTableId(rope_tables.size() - 1);
}

}  // namespace cleave::importer::from_onnx
