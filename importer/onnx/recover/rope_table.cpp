// SPDX-License-Identifier: Apache-2.0
// Recovers position * frequency * magnitude from the values of cos and sin that a graph computes.
#include <cmath>
#include <set>

#include "importer/onnx/recover/recovery.h"

namespace cleave::importer::from_onnx {
namespace {

// The nearest node of one of `ops` that `value` is computed from, searching through constants' nodes.
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

const std::vector<int64_t> kPositions{0, 1, 2, 3, 17, 100, 1000};

struct Rows {
    std::vector<double> cos, sin;
};

}  // namespace

bool Recovery::row_at_is_position(Ref value) {
    for (int64_t p : {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{1000}}) {
        if (fixed_tokens > 0 && p >= fixed_tokens) break;
        Probe probe =
            make_probe(possible(has_past ? Scenario{1, 1, p, {}} : Scenario{1, p + 1, 0, {}}));
        const Tensor* t = probe.data(value);
        const int64_t from_end = has_past || fixed_tokens == 0 ? 1 : fixed_tokens - p;
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

// `width`: entries of a row of cos; the frequencies are repeated when it is the whole rotary dimension.
RopeTableId Recovery::rope_table(Ref cos, Ref sin, int64_t width, bool interleaved,
                                 std::string& why) {
    const auto key = std::tuple(cos, sin, width, interleaved);
    if (auto found = tables_.find(key); found != tables_.end()) return found->second;
    const auto row = [&](int64_t p) -> std::optional<Rows> {
        auto c = row_at(cos, p), s = row_at(sin, p);
        if (!c || !s || c->size() != s->size() || static_cast<int64_t>(c->size()) != width)
            return std::nullopt;
        return Rows{*c, *s};
    };
    if (!row(1)) {
        why = "its cos and sin cannot be evaluated at a position" + blocked_by(cos);
        return {};
    }
    // Half-split rotations store every frequency twice.
    const auto repeated = [&](const Rows& r, int64_t half) {
        for (int64_t i = 0; i < half; ++i)
            if (r.cos[i] != r.cos[i + half] || r.sin[i] != r.sin[i + half]) return false;
        return true;
    };
    const bool doubled = width % 2 == 0 && find_upstream(model, cos, "Concat") != nullptr &&
                         repeated(*row(1), width / 2) && repeated(*row(17), width / 2);
    const int64_t half = doubled ? width / 2 : width;
    RopeTable table;
    table.rotary_dim = 2 * half;
    const Node* cosine = find_upstream(model, cos, "Cos");
    if (!cosine) {
        // Rows of a stored table.
        const Node *gc = find_upstream(model, cos, "Gather"),
                   *gs = find_upstream(model, sin, "Gather");
        const WeightView *wc = gc ? get<WeightView>(gc->input(0)) : nullptr,
                         *ws = gs ? get<WeightView>(gs->input(0)) : nullptr;
        if (!wc || !ws || wc->vector || ws->vector || !row_at_is_position(gc->input(1)) ||
            !row_at_is_position(gs->input(1))) {
            why = "its cos and sin are neither computed from frequencies nor rows of a table";
            return {};
        }
        WeightView c = *wc, s = *ws;
        c.columns.end = c.columns.begin + half;
        s.columns.end = s.columns.begin + half;
        return tables_[key] = stored_rope_table(c, s);
    }
    const auto angle = row_at(cosine->input(0), 1);
    const auto start = row(0);
    if (!angle || !start || static_cast<int64_t>(angle->size()) < half) {
        why = "its frequencies cannot be evaluated";
        return {};
    }
    table.magnitude = start->cos[0];
    for (int64_t i = 0; i < half; ++i) table.frequencies.push_back(static_cast<float>((*angle)[i]));
    for (int64_t p : kPositions) {
        if (fixed_tokens > 0 && p >= fixed_tokens) break;
        const auto r = row(p);
        const double tolerance = 1e-5 + 1e-6 * static_cast<double>(p);
        for (int64_t i = 0; r && i < width; ++i) {
            const double a = static_cast<double>(p) * table.frequencies[i % half];
            if (std::fabs(r->cos[i] - table.magnitude * std::cos(a)) > tolerance ||
                std::fabs(r->sin[i] - table.magnitude * std::sin(a)) > tolerance) {
                why = fmt::format(
                    "its cos and sin at position {} are not those of fixed frequencies", p);
                return {};
            }
        }
        if (!r) {
            why = fmt::format("its cos and sin cannot be evaluated at position {}", p);
            return {};
        }
    }
    for (size_t i = 0; i < rope_tables.size(); ++i)
        if (rope_tables[i].frequencies == table.frequencies &&
            rope_tables[i].magnitude == table.magnitude)
            return tables_[key] = RopeTableId(i);
    rope_tables.push_back(table);
    rope_weights.emplace_back();
    return tables_[key] = RopeTableId(rope_tables.size() - 1);
}

}  // namespace cleave::importer::from_onnx
