// SPDX-License-Identifier: Apache-2.0
// Attention in pieces: concat with the past, repeat of KV heads, q . k with its scale(s), masks,
// softmax, product with v.
#include "importer/onnx/recover/attention.h"

#include <algorithm>
#include <cmath>

#include "importer/onnx/recover/matchers.h"
#include "importer/onnx/recover/positions.h"

namespace cleave::importer::from_onnx {
namespace {

bool is_keys(const Axis& axis) {
    return is_only(axis, Factor::kTotal) || is_only(axis, Factor::kTokens);
}

}  // namespace

std::optional<Heads> read_heads(const View& view, const View* like) {
    View leading = view;
    leading.axes.resize(view.axes.size() - 2);
    Heads heads;
    for (size_t i = 0; i < leading.axes.size(); ++i) {
        Axis& axis = leading.axes[i];
        if (!axis.empty() && axis[0].kind == Factor::kBatch) {
            if (heads.batch || i != 0) return std::nullopt;
            heads.batch = true;
        }
        if (like && axis.empty() && like->axes.size() == view.axes.size()) {
            const Size n = axis_size(like->axes[i]);
            if (n[0] != n[1]) return std::nullopt;
            if (n[0] != 1) axis.push_back({Factor::kRepeat, n, 0});
        }
        for (const Factor& f : axis)
            if (f.kind == Factor::kTokens || f.kind == Factor::kPast || f.kind == Factor::kTotal)
                return std::nullopt;
    }
    for (const Factor& f : feature_factors(leading)) {
        if (f.kind == Factor::kFeature && heads.count == 1 && heads.repeat == 1) {
            heads.count = f.size[0];
            heads.stride = f.stride;
        } else if (f.kind == Factor::kRepeat && heads.repeat == 1) {
            heads.repeat = f.size[0];
        } else {
            return std::nullopt;
        }
    }
    return heads;
}

namespace {

// Keys may be transposed, [d, keys]; the features of a row are in order all the same.
View in_token_order(View view) {
    const size_t n = view.axes.size();
    if (n >= 2 && is_keys(view.axes[n - 1])) std::swap(view.axes[n - 1], view.axes[n - 2]);
    return view;
}

}  // namespace

TermId cache_of(Recovery& r, const Node& node, const View& keys) {
    if (keys.term.valid() && r.term(keys.term).kind == Term::kCache) return keys.term;
    View once = keys;  // without the repetitions for query heads
    for (Axis& axis : once.axes)
        std::erase_if(axis, [](const Factor& f) { return f.kind == Factor::kRepeat; });
    const TermId fresh = r.materialize(in_token_order(once), node);
    if (!fresh.valid()) return {};
    for (size_t i = 0; i < r.terms.size(); ++i)
        if (r.terms[i].kind == Term::kCache && r.terms[i].input < 0 && r.terms[i].in[0] == fresh)
            return TermId(i);
    return r.add_term(Term{Term::kCache, {fresh}, r.term(fresh).features}, node);
}

std::optional<Meaning> match_cache_concat(Recovery& r, const Node& node) {
    const View* past = r.get<View>(node.input(0));
    const View* fresh = r.get<View>(node.input(1));
    if (!past || !past->term.valid() || r.term(past->term).kind != Term::kPast) return std::nullopt;
    if (!fresh || node.in.size() != 2)
        return unknown(r, node,
                       "joins a cache with something that is not this step's keys or values");
    const int64_t axis = r.axis_of(node, node.integer("axis", 0), past->axes.size());
    View joined = *past;
    bool fits = past->axes.size() == fresh->axes.size() &&
                is_only(past->axes[axis], Factor::kPast) &&
                is_only(fresh->axes[axis], Factor::kTokens) && past->offset == 0;
    for (size_t i = 0; i < past->axes.size() && fits; ++i)
        if (static_cast<int64_t>(i) != axis) fits = past->axes[i] == fresh->axes[i];
    const View copy = *fresh;
    const TermId rows = fits ? r.materialize(copy, node) : TermId();
    if (!rows.valid())
        return unknown(r, node, "the cache and the new keys or values have different layouts");
    Term t{Term::kCache, {rows}, r.term(rows).features};
    t.input = r.term(past->term).input;
    joined.axes[axis][0].kind = Factor::kTotal;
    for (int s : {0, 1}) joined.axes[axis][0].size[s] += copy.axes[axis][0].size[s];
    joined.term = r.add_term(std::move(t), node);
    return joined;
}

namespace {

// TensorScatter: (cache, new keys or values, where each sequence's go) -> the cache with them in
// place.
Meaning tensor_scatter(Recovery& r, const Node& node) {
    const View *past = r.get<View>(node.input(0)), *fresh = r.get<View>(node.input(1));
    if (!past || !fresh || !past->term.valid() || r.term(past->term).kind != Term::kPast)
        return unknown(r, node, "writes into something other than a cache that is an input");
    if (node.text("mode", "linear") != "linear")
        return unknown(r, node, "a ring cache (mode circular) is not supported");
    if (node.input(2) == kNone || !counts_tokens(r, node.input(2), false))
        return unknown(r, node, "does not write behind the tokens so far");
    const int64_t axis = r.axis_of(node, node.integer("axis", -2), past->axes.size());
    const View fresh_view = *fresh;
    View joined = *past;
    bool fits = past->axes.size() == fresh->axes.size() &&
                is_only(past->axes[axis], Factor::kPast) &&
                is_only(fresh->axes[axis], Factor::kTokens);
    for (size_t i = 0; i < past->axes.size() && fits; ++i)
        if (static_cast<int64_t>(i) != axis) fits = past->axes[i] == fresh->axes[i];
    const TermId rows = fits ? r.materialize(fresh_view, node) : TermId();
    if (!rows.valid())
        return unknown(r, node, "the cache and the new keys or values have different layouts");
    Term t{Term::kCache, {rows}, r.term(rows).features};
    t.input = r.term(joined.term).input;
    joined.axes[axis][0].kind = Factor::kTotal;
    joined.term = r.add_term(std::move(t), node);
    r.assumes_right_padding = true;
    return joined;
}

}  // namespace

void add_mask(AttentionParts& parts, const MaskMeaning& mask) {
    AttentionAttrs& a = parts.attrs;
    a.causal = a.causal || mask.causal;
    if (mask.window > 0) a.window = a.window > 0 ? std::min(a.window, mask.window) : mask.window;
    parts.hides_padding = parts.hides_padding || mask.hides_padding;
    if (!mask.fits(a.num_heads)) parts.mask_heads = mask.heads;
    if (parts.mask_refusal.empty()) parts.mask_refusal = mask.refusal;
}

Meaning finish_attention(Recovery& r, const Node& node, const AttentionParts& parts, TermId& out) {
    const TermId q = r.materialize(parts.q, node);
    const TermId k = cache_of(r, node, parts.k), v = cache_of(r, node, parts.v);
    if (!q.valid() || !k.valid() || !v.valid())
        return unknown(r, node, "its query, keys or values are not whole heads");
    const AttentionAttrs& a = parts.attrs;
    const bool sizes_fit = r.term(q).features == a.num_heads * a.head_dim &&
                           r.term(k).features == a.num_kv_heads * a.head_dim &&
                           r.term(v).features == a.num_kv_heads * a.v_head_dim &&
                           a.num_kv_heads > 0 && a.num_heads % a.num_kv_heads == 0;
    if (!sizes_fit)
        return unknown(
            r, node,
            fmt::format("{} query and {} KV heads of {} do not fit {}, {} and {} features",
                        a.num_heads, a.num_kv_heads, a.head_dim, r.term(q).features,
                        r.term(k).features, r.term(v).features));
    if (!parts.mask_refusal.empty()) return unknown(r, node, parts.mask_refusal);
    if (!a.causal)
        return unknown(r, node,
                       "its mask lets tokens see later ones; only causal models can be decoded");
    if (parts.mask_heads != 1)
        return unknown(r, node,
                       fmt::format("its mask is given for {} heads, not for 1 or {}",
                                   parts.mask_heads, a.num_heads));
    if (!parts.hides_padding && r.padding_must_be_hidden())
        return unknown(r, node,
                       "the graph takes an attention mask, but this attention sees what it hides");
    if (!(a.scale > 0 && a.scale < 1e6))
        return unknown(r, node, fmt::format("its scale of {} is none of an attention", a.scale));
    Term t{Term::kAttention, {q, k, v}, a.num_heads * a.v_head_dim};
    t.attention = a;
    // Exporters that put a root of the scale on both sides square its rounding error; undo that.
    const double usual = 1.0 / std::sqrt(static_cast<double>(a.head_dim));
    if (std::abs(a.scale / usual - 1.0) < 3e-7) t.attention.scale = usual;
    out = r.add_term(std::move(t), node);
    return Known{};
}

namespace {

// q [.., tokens, d] times k [.., d, keys].
std::optional<Meaning> match_scores(Recovery& r, const Node& node) {
    const View *q = r.get<View>(node.input(0)), *stored = r.get<View>(node.input(1));
    if (!q || !stored || q->axes.size() < 3 || stored->axes.size() < 3) return std::nullopt;
    View turned = *stored;
    if (node.integer("transB", 0) != 0)
        std::swap(turned.axes.back(), turned.axes[turned.axes.size() - 2]);
    const View* k = &turned;
    const size_t nq = q->axes.size(), nk = k->axes.size();
    const int64_t d = contiguous_features(q->axes[nq - 1]);
    if (d == 0 || contiguous_features(k->axes[nk - 2]) != d || !is_keys(k->axes[nk - 1]) ||
        !is_only(q->axes[nq - 2], Factor::kTokens))
        return unknown(r, node,
                       "is a product of two activations, but not of queries and transposed keys");
    if (is_only(k->axes[nk - 1], Factor::kTokens) && r.has_past)
        return unknown(r, node, "its keys do not include the cache that the graph takes as input");
    const auto hq = read_heads(*q, nullptr), hk = read_heads(*k, q);
    const bool fits = hq && hk && hq->repeat == 1 && hq->batch == hk->batch &&
                      (hq->count == 1 || hq->stride == d) && (hk->count == 1 || hk->stride == d) &&
                      hk->count * hk->repeat == hq->count;
    if (!fits) return unknown(r, node, "its query and key heads do not correspond");
    Scores s{*q, *k, *q, q->scale * k->scale * node.real("alpha", 1.0)};
    s.num_heads = hq->count;
    s.num_kv_heads = hk->count;
    s.head_dim = d;
    s.q.scale = s.k.scale = 1.0;
    s.layout.axes[nq - 1] = k->axes[nk - 1];
    s.layout.scale = 1.0;
    return s;
}

// probabilities [.., tokens, keys] times v [.., keys, d].
Meaning match_values(Recovery& r, const Node& node, const Scores& s) {
    const View* v = r.get<View>(node.input(1));
    const size_t n = s.layout.axes.size();
    if (!s.normalized || !v || v->axes.size() < 3)
        return unknown(r, node,
                       "multiplies scores that no softmax was taken of, or not with values");
    const size_t nv = v->axes.size();
    const int64_t dv = contiguous_features(v->axes[nv - 1]);
    const auto heads = read_heads(*v, &s.layout);
    if (dv == 0 || !(v->axes[nv - 2] == s.layout.axes[n - 1]) || !heads ||
        heads->count != s.num_kv_heads || heads->count * heads->repeat != s.num_heads ||
        (heads->count > 1 && heads->stride != dv))
        return unknown(r, node, "its values do not correspond to the keys");
    AttentionParts parts{s.q, s.k, *v, {}};
    if (v->scale != 1.0) return unknown(r, node, "its values are scaled");
    AttentionAttrs& a = parts.attrs;
    a = {s.num_heads, s.num_kv_heads, s.head_dim, dv, s.scale, 0, s.softcap, false};
    for (const MaskUse& use : s.masks) add_mask(parts, r.mask_meaning(use));
    View out = s.layout;
    const int64_t head_dim = s.head_dim;
    TermId term;
    Meaning m = finish_attention(r, node, parts, term);
    if (!term.valid()) return m;
    out.term = term;
    out.offset = 0;
    for (size_t i = 0; i + 2 < n; ++i)
        for (Factor& f : out.axes[i])
            if (f.kind == Factor::kFeature) f.stride = f.stride / head_dim * dv;
    out.axes[n - 1] = dv == 1 ? Axis{} : Axis{{Factor::kFeature, {dv, dv}, 1}};
    return out;
}

Meaning softmax(Recovery& r, const Node& node) {
    const Scores* s = r.get<Scores>(node.input(0));
    if (!s || s->normalized || s->in_tanh)
        return unknown(r, node, "is a softmax of something other than scores");
    const int64_t axis = node.integer("axis", -1);
    if (axis != -1 && axis + 1 != static_cast<int64_t>(s->layout.axes.size()))
        return unknown(r, node, "is a softmax over something other than the keys");
    Scores p = *s;
    p.normalized = true;
    return p;
}

// Where(IsNaN(p), 0, p): rows that see no key; they are padding and never asked for.
Meaning is_nan(Recovery& r, const Node& node) {
    const Scores* s = r.get<Scores>(node.input(0));
    if (s && s->normalized) return NanTest{};
    return unknown(r, node, "tests something other than probabilities");
}

}  // namespace

std::optional<Meaning> match_attention_matmul(Recovery& r, const Node& node) {
    if (const Scores* s = r.get<Scores>(node.input(0))) {
        const Scores copy = *s;
        return match_values(r, node, copy);
    }
    return match_scores(r, node);
}

std::optional<Meaning> match_score_arithmetic(Recovery& r, const Node& node) {
    if (node.is("Where") && node.in.size() == 3) {
        const Scores *yes = r.get<Scores>(node.input(1)), *no = r.get<Scores>(node.input(2));
        if (r.get<NanTest>(node.input(0)) && no && no->normalized && r.number(node.input(1)) == 0.0)
            return *no;
        if (!r.is_known(node.input(0)) || (!yes && !no) || (yes && no)) return std::nullopt;
        Scores s = yes ? *yes : *no;
        const auto filler = r.number(node.in[yes ? 2 : 1]);
        if (s.normalized || s.in_tanh || !filler || *filler > -1e4)
            return unknown(r, node, "replaces scores by something that does not hide them");
        s.masks.push_back({node.input(0), false, !yes});
        return s;
    }
    for (size_t i = 0; i < node.in.size() && i < 2; ++i) {
        const Scores* found = r.get<Scores>(node.input(i));
        if (!found) continue;
        Scores s = *found;
        const Ref other = node.in.size() > 1 ? node.input(1 - i) : kNone;
        const double number = other == kNone ? NAN : r.number(other).value_or(NAN);
        const bool plain = !s.normalized && s.masks.empty();
        if (!std::isnan(number) && plain &&
            (node.is("Mul") || (node.is("Div") && i == 0 && number != 0))) {
            const double factor = node.is("Mul") ? number : 1.0 / number;
            if (!s.in_tanh && s.softcap > 0)
                return unknown(r, node, "scales scores after their soft cap");
            if (!s.in_tanh) {
                s.scale *= factor;
                return s;
            }
            // cap * tanh(s / cap): the division went into the scale, this factor is the cap.
            if (factor > 0) {
                s.softcap = factor;
                s.scale *= factor;
                s.in_tanh = false;
                return s;
            }
        }
        if (node.is("Tanh") && plain && !s.in_tanh && s.softcap == 0.0) {
            s.in_tanh = true;
            return s;
        }
        if (node.is("Add") && r.is_known(other) && !s.normalized && !s.in_tanh) {
            s.masks.push_back({other, true, false});
            return s;
        }
        return unknown(r, node,
                       "does something to attention scores that is neither scale nor mask");
    }
    return std::nullopt;
}

std::vector<NamedMatcher> attention_matchers() {
    return {{"Softmax", softmax}, {"IsNaN", is_nan}, {"TensorScatter", tensor_scatter}};
}

}  // namespace cleave::importer::from_onnx
