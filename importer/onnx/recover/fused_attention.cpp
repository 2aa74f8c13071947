// SPDX-License-Identifier: Apache-2.0
// The attention operators: ONNX Attention (opset 23 and 24), com.microsoft GroupQueryAttention.
#include <algorithm>
#include <cmath>

#include "importer/onnx/recover/attention.h"
#include "importer/onnx/recover/matchers.h"
#include "importer/onnx/recover/positions.h"

namespace cleave::importer::from_onnx {
namespace {

// Heads and tokens beyond this are no model's, and sums and products of them could overflow.
constexpr int64_t kMostCount = int64_t{1} << 30;

int64_t count_of(const Node& node, std::string_view attribute) {
    const int64_t n = node.integer(attribute, 0);
    return n > kMostCount ? 0 : n;
}

// One of query, key, value: its heads, whether [batch, heads, rows, d] or [batch, rows, heads * d].
struct Operand {
    int64_t heads = 0;
    int64_t head_dim = 0;
};

std::optional<Operand> read_operand(const View& v, int64_t heads_attribute) {
    const int64_t last = contiguous_features(v.axes.back());
    if (v.axes.size() == 3) {
        if (heads_attribute <= 0 || last % heads_attribute != 0) return std::nullopt;
        return Operand{heads_attribute, last / heads_attribute};
    }
    if (v.axes.size() != 4 || last == 0) return std::nullopt;
    const std::optional<Heads> heads = read_heads(v, nullptr);
    if (!heads || (heads->count > 1 && heads->stride != last)) return std::nullopt;
    return Operand{heads->count, last};
}

// Appends this step's rows to the past that the operator itself takes; [batch, heads, past, d].
// Sets the operator's output `present` to what it becomes.
std::optional<View> append(Recovery& r, const Node& node, const View& fresh, Ref past,
                           size_t present, const Operand& operand) {
    const View* p = r.get<View>(past);
    const TermId rows = r.materialize(fresh, node);
    if (!p || !rows.valid() || !p->term.valid() || r.term(p->term).kind != Term::kPast ||
        p->axes.size() != 4 || !is_only(p->axes[2], Factor::kPast) ||
        contiguous_features(p->axes[3]) != operand.head_dim ||
        r.term(rows).features != r.term(p->term).features)
        return std::nullopt;
    View joined = *p;
    Term t{Term::kCache, {rows}, r.term(rows).features};
    t.input = r.term(p->term).input;
    const auto total = r.sizes(node.input(0));
    if (!total) return std::nullopt;
    const Size tokens = (*total)[total->size() == 4 ? 2 : 1];
    joined.axes[2] = {{Factor::kTotal, joined.axes[2][0].size, 0}};
    for (int s : {0, 1}) joined.axes[2][0].size[s] += tokens[s];
    joined.term = r.add_term(std::move(t), node);
    r.set(node, present, joined, false);
    return joined;
}

// The result, laid out as the query was.
View result_view(const View& q, TermId term, int64_t head_dim, int64_t v_head_dim) {
    View out = q;
    out.term = term;
    out.offset = 0;
    out.scale = 1.0;
    if (head_dim == v_head_dim) return out;
    const size_t last = out.axes.size() - 1;
    if (out.axes.size() == 3) {
        const int64_t n = contiguous_features(q.axes.back()) / head_dim * v_head_dim;
        out.axes[last] = {{Factor::kFeature, {n, n}, 1}};
        return out;
    }
    for (size_t i = 0; i < last; ++i)
        for (Factor& f : out.axes[i])
            if (f.kind == Factor::kFeature) f.stride = f.stride / head_dim * v_head_dim;
    out.axes[last] = {{Factor::kFeature, {v_head_dim, v_head_dim}, 1}};
    return out;
}

void add_mask(Recovery& r, Ref mask, AttentionParts& parts) {
    // Some masks can be evaluated without a past only (masks.cpp); their type shows there as well.
    Probe whole_prompt = r.make_probe(r.possible({2, 8, 0, {}}));
    const Tensor* t = r.data(mask);
    if (!t) t = whole_prompt.data(mask);
    add_mask(parts, r.mask_meaning({mask, !t || t->real, false}));
}

// (q, k, v, mask, past k, past v, lengths) -> y, present k, present v, scores.
Meaning attention(Recovery& r, const Node& node) {
    const View *qp = r.get<View>(node.input(0)), *kp = r.get<View>(node.input(1)),
               *vp = r.get<View>(node.input(2));
    if (!qp || !kp || !vp) return unknown(r, node, "its query, keys or values are not understood");
    if (node.output(3) != kNone)
        return unknown(r, node, "its scores as an output are not supported");
    const bool counted = node.input(6) != kNone;
    if (counted && !counts_tokens(r, node.input(6), true))
        return unknown(r, node, "nonpad_kv_seqlen does not count the tokens so far");
    const int64_t left = node.integer("left_window_size", -1);
    if (left < -1 || left > kMostCount)
        return unknown(r, node, fmt::format("its attribute left_window_size is {}", left));
    if (node.integer("right_window_size", -1) > 0)
        return unknown(r, node, "a window that sees later tokens is not supported");
    const View q = *qp, k = *kp, v = *vp;
    const auto oq = read_operand(q, count_of(node, "q_num_heads"));
    const auto ok = read_operand(k, count_of(node, "kv_num_heads"));
    const auto ov = read_operand(v, count_of(node, "kv_num_heads"));
    if (!oq || !ok || !ov || ok->heads != ov->heads || oq->head_dim != ok->head_dim)
        return unknown(r, node, "its heads do not stand together");
    AttentionParts parts{q, k, v, {}};
    AttentionAttrs& a = parts.attrs;
    a = {oq->heads, ok->heads, oq->head_dim, ov->head_dim};
    a.scale = node.real("scale", 1.0 / std::sqrt(static_cast<double>(a.head_dim))) * q.scale;
    a.softcap = node.real("softcap", 0.0);
    if (const int64_t flag = node.integer("is_causal", 0); flag != 0 && flag != 1)
        return unknown(r, node, fmt::format("its attribute is_causal is {}, not 0 or 1", flag));
    a.causal = node.integer("is_causal", 0) != 0 || node.integer("right_window_size", -1) == 0;
    a.window = left + 1;
    r.assumes_right_padding = r.assumes_right_padding || counted;
    parts.q.scale = 1.0;
    if (node.input(4) != kNone) {
        const auto pk = append(r, node, k, node.input(4), 1, *ok),
                   pv = append(r, node, v, node.input(5), 2, *ov);
        if (!pk || !pv) return unknown(r, node, "its past is not that of its keys and values");
        parts.k = *pk;
        parts.v = *pv;
    } else if (a.causal && r.has_past && !counted) {
        return unknown(r, node,
                       "is_causal counts from the first key, but its keys include a cache");
    } else if (parts.v.scale != 1.0) {
        return unknown(r, node, "its values are scaled");
    } else if (parts.k.scale != 1.0 && r.term(parts.k.term).kind == Term::kCache) {
        a.scale *= parts.k.scale;
        parts.k.scale = 1.0;
    }
    if (node.input(3) != kNone) add_mask(r, node.input(3), parts);
    TermId term;
    Meaning m = finish_attention(r, node, parts, term);
    return term.valid() ? Meaning(result_view(q, term, a.head_dim, a.v_head_dim)) : m;
}

// seqlens_k and total_sequence_length must say that every token so far is a key.
bool counts_all_keys(Recovery& r, const Node& node) {
    for (int i : {0, 1}) {
        const Scenario& s = r.probe(i).scenario();
        const Tensor *lengths = r.probe(i).data(node.input(5)),
                     *total = r.probe(i).data(node.input(6));
        if (!lengths || !total || total->count() != 1 ||
            total->at(0) != static_cast<double>(s.past + s.tokens))
            return false;
        for (int64_t b = 0; b < lengths->count(); ++b)
            if (lengths->at(b) != static_cast<double>(s.past + s.tokens - 1)) return false;
    }
    return true;
}

// A ring cache keeps the keys of the window alone. Attention sees no others, so that the Graph's
// own cache of the whole context gives the same; but the ring's length is not that of the past, and
// nothing else may count with it.
std::optional<std::string> unsupported_ring(const Recovery& r, const Node& node) {
    if (node.integer("local_window_size", -1) <= 0)
        return "a ring cache (sliding_window_cache) without a local_window_size is not supported";
    for (const Node& other : r.model.nodes)
        for (Ref in : other.in)
            if (in != kNone && (in == node.input(3) || in == node.input(4)) && &other != &node)
                return fmt::format("{} reads its ring cache (sliding_window_cache) as well",
                                   r.describe(other));
    return std::nullopt;
}

std::optional<std::string> unsupported_gqa(Recovery& r, const Node& node) {
    static constexpr std::string_view kKnown[] = {"num_heads",
                                                  "kv_num_heads",
                                                  "scale",
                                                  "softcap",
                                                  "do_rotary",
                                                  "rotary_interleaved",
                                                  "local_window_size",
                                                  "smooth_softmax",
                                                  "qk_output",
                                                  "k_quant_type",
                                                  "v_quant_type",
                                                  "kv_cache_bit_width",
                                                  "qk_norm_epsilon",
                                                  "sliding_window_cache",
                                                  "causal"};
    for (const onnx::AttributeProto& a : node.proto->attribute())
        if (std::find(std::begin(kKnown), std::end(kKnown), a.name()) == std::end(kKnown))
            return fmt::format("its attribute '{}' is not supported", a.name());
    for (const char* name : {"do_rotary", "rotary_interleaved"})
        if (const int64_t flag = node.integer(name, 0); flag != 0 && flag != 1)
            return fmt::format("its attribute {} is {}, not 0 or 1", name, flag);
    if (const int64_t window = node.integer("local_window_size", -1);
        window < -1 || window == 0 || window > kMostCount)
        return fmt::format("its local_window_size is {}, neither -1 (none) nor a window", window);
    if (node.integer("smooth_softmax", 0) > 0) return "smooth_softmax is not supported";
    if (node.integer("qk_output", 0) != 0) return "its scores as an output are not supported";
    if (node.text("k_quant_type", "NONE") != "NONE" || node.text("v_quant_type", "NONE") != "NONE")
        return "a quantised cache is not supported";
    if (node.integer("sliding_window_cache", 0) != 0)
        if (const auto why = unsupported_ring(r, node)) return why;
    if (node.integer("causal", 1) == 0) return "attention that is not causal is not supported";
    static constexpr std::string_view kUnsupported[] = {"head_sink", "k_scale", "v_scale"};
    for (size_t i = 11; i < node.in.size(); ++i)
        if (node.input(i) != kNone && i != 14 && i != 15)
            return i < 14 ? fmt::format("its input {} is not supported", kUnsupported[i - 11])
                          : fmt::format("its input {} is not supported", i);
    if ((node.input(14) == kNone) != (node.input(15) == kNone))
        return "only one of q_norm_weight and k_norm_weight is given";
    if (!counts_all_keys(r, node))
        return "seqlens_k and total_sequence_length do not count the tokens so far";
    return std::nullopt;
}

struct Projections {
    View q, k, v;
    int64_t head_dim = 0;
};

// Query, key and value, or all three packed in one.
std::optional<Projections> projections(Recovery& r, const Node& node, int64_t heads,
                                       int64_t kv_heads) {
    const View *q = r.get<View>(node.input(0)), *k = r.get<View>(node.input(1)),
               *v = r.get<View>(node.input(2));
    if (!q || q->axes.size() != 3 || heads <= 0 || kv_heads <= 0) return std::nullopt;
    const int64_t features = contiguous_features(q->axes.back());
    if (k && v && features > 0 && features % heads == 0)
        return Projections{*q, *k, *v, features / heads};
    if (k || v || node.input(1) != kNone || features % (heads + 2 * kv_heads) != 0)
        return std::nullopt;
    const int64_t d = features / (heads + 2 * kv_heads);
    const auto pq = sliced(*q, 2, 0, heads * d, 1), pk = sliced(*q, 2, heads * d, kv_heads * d, 1);
    const auto pv = sliced(*q, 2, (heads + kv_heads) * d, kv_heads * d, 1);
    if (!pq || !pk || !pv) return std::nullopt;
    return Projections{*pq, *pk, *pv, d};
}

// Rotates q and k as the operator does inside. False: its tables are not understood.
bool rotate(Recovery& r, const Node& node, Projections& p, int64_t heads, int64_t kv_heads) {
    int64_t cos_holds = 0, sin_holds = 0;  // longrope: short factors up to a length
    const WeightView *cos = r.get<WeightView>(chosen_at_first(r, node.input(7), cos_holds)),
                     *sin = r.get<WeightView>(chosen_at_first(r, node.input(8), sin_holds));
    if (!cos || !sin || cos->vector || sin->vector || 2 * cos->columns.size() > p.head_dim)
        return false;
    if (node.input(9) != kNone && !row_at_is_position(r, node.input(9))) return false;
    if (cos_holds != sin_holds) return false;
    const RopeTableId table = r.rope_tables.stored(*cos, *sin);
    int64_t& largest = r.rope_tables[table].table.max_positions;
    if (cos_holds > 0) largest = std::min(largest, cos_holds);
    const int64_t rotary = r.rope_tables[table].table.rotary_dim;
    const bool interleaved = node.integer("rotary_interleaved", 0) != 0;
    const Meaning q = finish_rope(r, node, p.q, heads, p.head_dim, rotary, interleaved, table);
    const Meaning k = finish_rope(r, node, p.k, kv_heads, p.head_dim, rotary, interleaved, table);
    const View *vq = std::get_if<View>(&q), *vk = std::get_if<View>(&k);
    if (!vq || !vk) return false;
    p.q = *vq;
    p.k = *vk;
    return true;
}

// RMSNorm of each head of q and k, before they are rotated. False: its weights are not understood.
bool normalize(Recovery& r, const Node& node, Projections& p) {
    const WeightView *wq = r.get<WeightView>(node.input(14)),
                     *wk = r.get<WeightView>(node.input(15));
    if (!wq || !wk) return false;
    const double epsilon = node.real("qk_norm_epsilon", 1e-6);
    const Meaning q = finish_norm(r, node, p.q, p.head_dim, epsilon, *wq);
    const Meaning k = finish_norm(r, node, p.k, p.head_dim, epsilon, *wk);
    const View *vq = std::get_if<View>(&q), *vk = std::get_if<View>(&k);
    if (!vq || !vk) return false;
    p.q = *vq;
    p.k = *vk;
    return true;
}

// (q, k, v, past k, past v, seqlens_k, total, cos, sin, positions, bias, sink, k scale, v scale, q
// norm, k norm) -> y, present k, present v.
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.GroupQueryAttention
Meaning group_query_attention(Recovery& r, const Node& node) {
    const int64_t heads = count_of(node, "num_heads"), kv_heads = count_of(node, "kv_num_heads");
    if (const auto why = unsupported_gqa(r, node)) return unknown(r, node, *why);
    auto p = projections(r, node, heads, kv_heads);
    if (!p)
        return unknown(r, node,
                       "its query, key and value are not three values or one packed value");
    if (node.input(14) != kNone && !normalize(r, node, *p))
        return unknown(
            r, node,
            "q_norm_weight and k_norm_weight are not constants for the features of a head");
    if (node.integer("do_rotary", 0) != 0 && !rotate(r, node, *p, heads, kv_heads))
        return unknown(
            r, node,
            "its rotary tables are not constants for half of a head at the tokens' positions");
    AttentionParts parts{p->q, p->k, p->v, {}, true};  // seqlens_k counts, padding is at the end
    AttentionAttrs& a = parts.attrs;
    a = {heads, kv_heads, p->head_dim, p->head_dim};
    a.scale = node.real("scale", 0.0);
    if (a.scale == 0.0) a.scale = 1.0 / std::sqrt(static_cast<double>(a.head_dim));
    a.scale *= parts.q.scale;
    parts.q.scale = 1.0;
    a.softcap = node.real("softcap", 0.0);
    a.causal = true;
    a.window = std::max<int64_t>(0, node.integer("local_window_size", -1));
    const Operand kv{kv_heads, p->head_dim};
    const auto k = append(r, node, p->k, node.input(3), 1, kv),
               v = append(r, node, p->v, node.input(4), 2, kv);
    if (!k || !v) return unknown(r, node, "its past is not that of its keys and values");
    parts.k = *k;
    parts.v = *v;
    if (node.input(10) != kNone) add_mask(r, node.input(10), parts);
    TermId term;
    Meaning m = finish_attention(r, node, parts, term);
    if (!term.valid()) return m;
    r.assumes_right_padding = true;
    View out = r.whole(term);
    return out;
}

// One bias for query, key and value, behind each other.
bool add_biases(Recovery& r, const Node& node, Projections& p) {
    const WeightView* all = r.get<WeightView>(node.input(3));
    if (!all || !all->vector) return false;
    WeightView part = *all;
    int64_t begin = all->rows.begin;
    for (View* v : {&p.q, &p.k, &p.v}) {
        const TermId product = v->scale == 1.0 ? r.materialize(*v, node) : TermId();
        if (!product.valid()) return false;
        part.rows = {begin, begin + r.term(product).features};
        begin = part.rows.end;
        if (begin > all->rows.end) return false;
        const TermId sum = biased(r, node, product, part);
        if (!sum.valid()) return false;
        v->term = sum;
        v->offset = 0;
    }
    return begin == all->rows.end;
}

// Heads of [.., heads * d]; each may come several times in a row. 0: it is no such thing.
int64_t distinct_heads(const View& v, int64_t head_dim) {
    int64_t heads = 1;
    const std::vector<Factor> factors = feature_factors(v);
    for (const Factor& f : factors)
        if (f.kind == Factor::kFeature) heads *= f.size[0];
    const bool repeated = factors.size() == 3 && factors[1].kind == Factor::kRepeat;
    const bool one_repeated = factors.size() == 2 && factors[0].kind == Factor::kRepeat;
    if ((factors.size() != 1 && !repeated && !one_repeated) || factors.back().stride != 1) return 0;
    if ((repeated || one_repeated) && factors.back().size[0] != head_dim) return 0;
    if (repeated && factors[0].stride != head_dim) return 0;
    return heads % head_dim == 0 ? heads / head_dim : 0;
}

// (q, k, v, bias, key padding, attention bias, past k, past v, ...) -> y, present k, present v.
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MultiHeadAttention
Meaning multi_head_attention(Recovery& r, const Node& node) {
    const int64_t heads = count_of(node, "num_heads");
    auto p = projections(r, node, heads, heads);
    if (!p || node.input(1) == kNone)
        return unknown(r, node, "its query, key and value are not three values");
    for (size_t i : {4u, 8u, 9u})
        if (node.input(i) != kNone)
            return unknown(r, node, fmt::format("its input {} is not supported", i));
    if (node.input(3) != kNone && !add_biases(r, node, *p))
        return unknown(r, node,
                       "its bias is not one for the products that are query, key and value");
    AttentionParts parts{p->q, p->k, p->v, {}};
    AttentionAttrs& a = parts.attrs;
    const int64_t kv_heads = distinct_heads(p->k, p->head_dim);
    if (kv_heads != distinct_heads(p->v, p->head_dim) || kv_heads == 0)
        return unknown(r, node, "its keys and values are not heads, or repeated differently");
    a = {heads, kv_heads, p->head_dim, p->head_dim};
    a.scale = node.real("scale", 0.0);
    if (a.scale == 0.0) a.scale = 1.0 / std::sqrt(static_cast<double>(a.head_dim));
    a.scale *= parts.q.scale;
    parts.q.scale = 1.0;
    a.causal = node.integer("unidirectional", 0) != 0;
    if (node.input(6) != kNone) {
        const Operand kv{kv_heads, p->head_dim};
        const auto k = append(r, node, p->k, node.input(6), 1, kv),
                   v = append(r, node, p->v, node.input(7), 2, kv);
        if (!k || !v) return unknown(r, node, "its past is not that of its keys and values");
        parts.k = *k;
        parts.v = *v;
    }
    if (node.input(5) != kNone) add_mask(r, node.input(5), parts);
    TermId term;
    Meaning m = finish_attention(r, node, parts, term);
    return term.valid() ? Meaning(r.whole(term)) : m;
}

}  // namespace

std::vector<NamedMatcher> fused_attention_matchers() {
    return {{"Attention", attention},
            {"GroupQueryAttention", group_query_attention},
            {"MultiHeadAttention", multi_head_attention}};
}

}  // namespace cleave::importer::from_onnx
