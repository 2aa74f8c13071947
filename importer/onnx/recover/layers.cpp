// SPDX-License-Identifier: Apache-2.0
#include "importer/onnx/recover/layers.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "importer/onnx/recover/graph_writer.h"
#include "importer/onnx/recover/matchers.h"
#include "runtime/base/errors.h"

namespace cleave::importer::from_onnx {
namespace {

// What is between a block's last product and the residual stream. Norm and scale may be
// missing.
struct Branch {
    TermId linear, norm, scale, sum;
};

// A projection of the layer's first norm, then the norms and rotations on top of it, in order.
struct Projection {
    TermId linear;
    std::vector<TermId> after;
};

// Norms before attention and MLP may be missing where a norm follows them.
struct Layer {
    TermId input, input_norm, k_cache, v_cache, attention, post_norm, gate, up, gated;
    Projection q, k, v;
    Branch attention_out, mlp_out;
};

class LayerReader {
public:
    explicit LayerReader(Recovery& r) : r_(r) {}

    Layer read(TermId out) {
        Layer l;
        TermId middle;
        std::tie(middle, l.mlp_out) = residual(out, Term::kGated);
        l.gated = input(l.mlp_out.linear);
        l.gate = input(l.gated, 0);
        l.up = input(l.gated, 1);
        want(l.gate, Term::kLinear, "the gate must be a Linear of the layer's second norm");
        want(l.up, Term::kLinear, "the up projection must be a Linear of the layer's second norm");
        if (input(l.up) != input(l.gate))
            refuse(l.up, "gate and up projections read different values");
        l.post_norm = norm_before(input(l.gate), middle, l.mlp_out, "the MLP");
        std::tie(l.input, l.attention_out) = residual(middle, Term::kAttention);
        l.attention = input(l.attention_out.linear);
        read_attention(l);
        return l;
    }

    [[noreturn]] void refuse(TermId id, const std::string& why) const {
        const Term& t = r_.term(id);
        const std::string where =
            t.nodes.empty() ? "a node" : r_.describe(r_.model.nodes[t.nodes.back()]);
        throw UserError(
            "{}: {}: {}; the structure of a decoder layer of the Llama family is supported",
            r_.model.path, where, why);
    }

private:
    TermId input(TermId id, size_t i = 0) const { return r_.term(id).in.at(i); }
    Term::Kind kind(TermId id) const { return r_.term(id).kind; }

    void want(TermId id, Term::Kind wanted, const std::string& why) const {
        if (kind(id) != wanted) refuse(id, why);
    }

    // What a block reads: an RMSNorm of the stream, or the stream itself where the block's result
    // is normed.
    TermId norm_before(TermId read, TermId stream, const Branch& branch, const char* block) const {
        if (read == stream && branch.norm.valid()) return {};
        if (kind(read) != Term::kNorm) refuse(read, fmt::format("{} must read an RMSNorm", block));
        if (input(read) != stream)
            refuse(read,
                   fmt::format("the norm of {} must read the value that its result is added to",
                               block));
        return read;
    }

    // sum = stream + [scale] [norm] Linear(core): gives the stream and the rest.
    std::pair<TermId, Branch> residual(TermId sum, Term::Kind core) const {
        if (kind(sum) == Term::kAdd)
            for (size_t i : {1, 0}) {
                Branch b;
                b.sum = sum;
                b.linear = input(sum, i);
                if (kind(b.linear) == Term::kScale && r_.term(b.linear).softcap == 0) {
                    b.scale = b.linear;
                    b.linear = input(b.linear);
                }
                if (kind(b.linear) == Term::kNorm) {
                    b.norm = b.linear;
                    b.linear = input(b.linear);
                }
                if (kind(b.linear) == Term::kLinear && kind(input(b.linear)) == core)
                    return {input(sum, 1 - i), b};
            }
        refuse(sum, core == Term::kGated
                        ? "expected the sum of the residual stream and a gated MLP"
                        : "expected the sum of the residual stream and an attention block");
    }

    Projection read_projection(TermId from) const {
        Projection p;
        while (kind(from) == Term::kRope || kind(from) == Term::kNorm) {
            p.after.insert(p.after.begin(), from);
            from = input(from);
        }
        want(from, Term::kLinear,
             "queries, keys and values must be Linears of the layer's first norm");
        p.linear = from;
        return p;
    }

    TermId rope_of(const Projection& p) const {
        TermId rope;
        for (TermId id : p.after)
            if (kind(id) == Term::kRope) {
                if (rope.valid()) refuse(id, "queries or keys are rotated (RoPE) twice");
                rope = id;
            }
        return rope;
    }

    void read_attention(Layer& l) const {
        l.k_cache = input(l.attention, 1);
        l.v_cache = input(l.attention, 2);
        l.q = read_projection(input(l.attention, 0));
        l.k = read_projection(input(l.k_cache));
        l.v = read_projection(input(l.v_cache));
        if (!l.v.after.empty()) refuse(input(l.v_cache), "the values are rotated or normalised");
        const TermId q = rope_of(l.q), k = rope_of(l.k);
        if (q.valid() != k.valid())
            refuse(l.attention,
                   fmt::format("only the {} are rotated (RoPE)", q.valid() ? "queries" : "keys"));
        if (q.valid() && !(r_.term(q).rope.table == r_.term(k).rope.table &&
                           r_.term(q).rope.rotary_dim == r_.term(k).rope.rotary_dim &&
                           r_.term(q).rope.interleaved == r_.term(k).rope.interleaved))
            refuse(l.attention, "queries and keys are rotated differently");
        const TermId read = input(l.q.linear);
        if (input(l.k.linear) != read)
            refuse(l.k.linear,
                   "the keys are made from another value than the queries (another layer's?)");
        if (input(l.v.linear) != read)
            refuse(l.v.linear,
                   "the values are made from another value than the queries (another layer's?)");
        l.input_norm = norm_before(read, l.input, l.attention_out, "attention");
    }

    Recovery& r_;
};

// Each layer reads and writes its own past, and gives it back where it took it.
class CacheCheck {
public:
    CacheCheck(const Recovery& r, const LayerReader& reader) : r_(r), reader_(reader) {}

    void layer(const Layer& l) {
        for (TermId cache : {l.k_cache, l.v_cache}) {
            const int past = r_.term(cache).input;
            if (past < 0 && r_.has_past)
                reader_.refuse(
                    l.attention,
                    "it reads no cache, but the graph has cached keys and values as inputs");
            if (past >= 0 && !taken_.insert(past).second)
                reader_.refuse(
                    cache,
                    fmt::format("the cache '{}' is read by two layers, or as keys and values",
                                r_.model.values[r_.model.inputs[past].value].name));
            caches_.push_back(cache);
        }
    }

    // present.i must be what past.i grows into: in the same order among the outputs as among the
    // inputs, or both in one of the orders that exporters use.
    void outputs() const {
        if (!r_.has_past) return;
        std::vector<int> pasts, presents;
        for (size_t i = 0; i < r_.roles.size(); ++i) {
            if (r_.roles[i] != InputRole::kPast) continue;
            pasts.push_back(static_cast<int>(i));
            if (!taken_.count(static_cast<int>(i)))
                throw UserError("{}: no layer reads the cache '{}' that the graph has as input",
                                r_.model.path, r_.model.values[r_.model.inputs[i].value].name);
        }
        for (Ref out : r_.model.outputs)
            if (const View* v = r_.get<View>(out); v && r_.term(v->term).kind == Term::kCache)
                presents.push_back(r_.term(v->term).input);
        if (presents.empty() || (is_usual_order(pasts) && is_usual_order(presents))) return;
        for (size_t i = 0; i < presents.size() || i < pasts.size(); ++i)
            if (i >= presents.size() || i >= pasts.size() || presents[i] != pasts[i])
                throw UserError(
                    "{}: the caches that the graph gives do not stand in the order of those it "
                    "takes ('{}' is not what becomes of '{}'); a layer would read another one's "
                    "past",
                    r_.model.path, i < presents.size() ? cache_output_name(i) : "nothing",
                    i < pasts.size() ? r_.model.values[r_.model.inputs[pasts[i]].value].name
                                     : "nothing");
    }

private:
    // Layer by layer a key and a value, or all keys before all values. `caches_` goes from the last
    // layer back.
    bool is_usual_order(const std::vector<int>& pasts) const {
        std::vector<int> keys, values, pairs;
        for (size_t i = caches_.size(); i >= 2; i -= 2) {
            keys.push_back(r_.term(caches_[i - 2]).input);
            values.push_back(r_.term(caches_[i - 1]).input);
            pairs.insert(pairs.end(), {keys.back(), values.back()});
        }
        keys.insert(keys.end(), values.begin(), values.end());
        return pasts == pairs || pasts == keys;
    }

    std::string cache_output_name(size_t index) const {
        for (Ref out : r_.model.outputs)
            if (const View* v = r_.get<View>(out);
                v && r_.term(v->term).kind == Term::kCache && index-- == 0)
                return r_.model.values[out].name;
        return "";
    }

    const Recovery& r_;
    const LayerReader& reader_;
    std::set<int> taken_;
    std::vector<TermId> caches_;
};

// The scale and the cap of cap * tanh(scale * x / cap), when the samples are that of x.
std::optional<ScaleAttrs> softcap_of(const Elementwise& e) {
    const std::vector<double>& x = sample_points();
    const auto near = static_cast<size_t>(
        std::min_element(x.begin(), x.end(),
                         [](double a, double b) { return std::fabs(a) < std::fabs(b); }) -
        x.begin());
    const size_t far = x.size() - 1;
    // k = scale / cap: what tanh(far k) / tanh(near k) falls with.
    const double ratio = e.samples[far] / e.samples[near];
    double low = 1e-9, high = 1e3;
    for (int i = 0; i < 200; ++i) {
        const double k = std::sqrt(low * high);
        (std::tanh(x[far] * k) / std::tanh(x[near] * k) > ratio ? low : high) = k;
    }
    const double k = std::sqrt(low * high), exact_cap = e.samples[far] / std::tanh(x[far] * k);
    const auto rounded = [](double v) {
        const double f = static_cast<double>(static_cast<float>(v));
        return std::fabs(f - v) < 1e-8 * std::fabs(v) ? f : v;
    };
    ScaleAttrs out{rounded(k * exact_cap), rounded(exact_cap)};
    for (size_t i = 0; i < x.size(); ++i)
        if (!(std::fabs(e.samples[i] - out.softcap * std::tanh(out.factor * x[i] / out.softcap)) <
              1e-6 * std::fabs(out.softcap)))
            return std::nullopt;
    return out;
}

struct Logits {
    TermId linear, scale;
};

// A Linear as an output, perhaps with a factor (Granite) or a soft cap (Gemma-2) on it.
std::optional<Logits> as_logits(Recovery& r, Ref out) {
    const auto* e = r.get<Elementwise>(out);
    const View* v = e ? &e->x : r.get<View>(out);
    if (!v || r.term(v->term).kind != Term::kLinear || !is_token_rows(*v)) return std::nullopt;
    const auto range = feature_range(*v);
    if (!range || range->begin != 0 || range->end != r.term(v->term).features) return std::nullopt;
    Logits logits{v->term, {}};
    const auto cap = e ? softcap_of(*e) : std::optional(ScaleAttrs{v->scale, 0.0});
    if (!cap) return std::nullopt;
    if (cap->factor == 1.0 && cap->softcap == 0.0) return logits;
    Term t{Term::kScale, {v->term}, range->end};
    t.nodes = r.meaning(out).trail;
    t.scale = cap->factor;
    t.softcap = cap->softcap;
    r.terms.push_back(std::move(t));
    logits.scale = TermId(r.terms.size() - 1);
    return logits;
}

// The one output that is a Linear of features that no cache holds.
Logits find_logits(Recovery& r, std::vector<std::string>& notes) {
    std::optional<Logits> logits;
    std::string reason;
    for (Ref out : r.model.outputs) {
        if (const Unknown* u = r.get<Unknown>(out)) {
            if (reason.empty()) reason = u->reason;
            continue;
        }
        const View* v = r.get<View>(out);
        if (v && r.term(v->term).kind == Term::kCache) continue;
        if (!logits)
            logits = as_logits(r, out);
        else
            notes.push_back("the extra output '" + r.model.values[out].name + "' is not computed");
    }
    if (logits && reason.empty()) return *logits;
    if (reason.empty())
        reason =
            "no output gives logits (a Linear of the last norm); export the model with its "
            "language-model head";
    throw UserError("{}: {}", r.model.path, reason);
}

// Norms and rotations of queries and keys, each in the graph's order.
void write_turns(const Recovery& r, GraphWriter& w, const Layer& l, ValueId& q, ValueId& k) {
    const auto write = [&](const char* name, const std::vector<TermId>& ops, size_t i, ValueId& x) {
        if (i >= ops.size()) return;
        const bool norm = r.term(ops[i]).kind == Term::kNorm;
        x = norm ? w.norm(fmt::format("{}_norm", name), ops[i], x)
                 : w.rope(fmt::format("{}_rope", name), ops[i], x);
    };
    for (size_t i = 0; i < std::max(l.q.after.size(), l.k.after.size()); ++i) {
        write("q", l.q.after, i, q);
        write("k", l.k.after, i, k);
    }
}

// The block's last product, its norm and scale, added to the residual stream.
ValueId write_branch(GraphWriter& w, const std::string& linear, const std::string& block,
                     const Branch& b, ValueId y, ValueId stream) {
    y = w.linear(linear, b.linear, y);
    if (b.norm.valid()) y = w.norm(block + "_post_norm", b.norm, y);
    if (b.scale.valid()) y = w.scale(block + "_scale", b.scale, y);
    return w.add(block + "_residual", b.sum, stream, y);
}

ValueId write_layer(const Recovery& r, GraphWriter& w, const Layer& l, ValueId x) {
    const ValueId normed = l.input_norm.valid() ? w.norm("input_norm", l.input_norm, x) : x;
    // Products first, as all three read the same value.
    ValueId q = w.linear("q_proj", l.q.linear, normed);
    ValueId k = w.linear("k_proj", l.k.linear, normed);
    const ValueId v = w.linear("v_proj", l.v.linear, normed);
    write_turns(r, w, l, q, k);
    const ValueId state = w.kv_append(l.attention, l.k_cache, l.v_cache, k, v);
    x = write_branch(w, "o_proj", "attention", l.attention_out, w.attention(l.attention, q, state),
                     x);
    const ValueId normed2 = l.post_norm.valid() ? w.norm("post_norm", l.post_norm, x) : x;
    const ValueId gate = w.linear("gate_proj", l.gate, normed2);
    const ValueId up = w.linear("up_proj", l.up, normed2);
    return write_branch(w, "down_proj", "mlp", l.mlp_out, w.gated(l.gated, gate, up), x);
}

}  // namespace

bool has_head(Recovery& r) {
    return std::any_of(r.model.outputs.begin(), r.model.outputs.end(), [&](Ref out) {
        const auto* e = r.get<Elementwise>(out);
        const View* v = e ? &e->x : r.get<View>(out);
        if (r.get<Unknown>(out)) return true;  // perhaps; the reason is the error
        return v && r.term(v->term).kind == Term::kLinear && is_token_rows(*v);
    });
}

Graph build_graph(Recovery& r, Model& model) {
    std::vector<std::string> notes = model.notes;
    const Logits logits = find_logits(r, notes);
    LayerReader reader(r);
    CacheCheck caches(r, reader);
    TermId norm = r.term(logits.linear).in.at(0), select;
    if (r.term(norm).kind == Term::kSelect) {
        select = norm;
        norm = r.term(norm).in.at(0);
    }
    if (r.term(norm).kind != Term::kNorm)
        reader.refuse(logits.linear, "logits must be a Linear of the last RMSNorm");
    TermId stream = r.term(norm).in.at(0);
    if (r.term(stream).kind == Term::kSelect) {
        select = stream;
        stream = r.term(stream).in.at(0);
    }
    std::vector<Layer> layers;
    while (r.term(stream).kind == Term::kAdd) {
        layers.push_back(reader.read(stream));
        caches.layer(layers.back());
        stream = layers.back().input;
    }
    if (r.term(stream).kind != Term::kEmbedding || layers.empty())
        reader.refuse(stream, "the residual stream must begin with an embedding of token ids");
    caches.outputs();
    std::reverse(layers.begin(), layers.end());
    if (select.valid()) notes.push_back("the file gives logits of the last token only");

    GraphWriter w(r, model);
    ValueId x = w.embedding(stream);
    for (size_t n = 0; n < layers.size(); ++n) {
        w.begin_layer(static_cast<int>(n));
        x = write_layer(r, w, layers[n], x);
    }
    w.begin_layer(static_cast<int>(layers.size()), "");
    x = w.norm("final_norm", norm, w.select(select, x));
    w.logits(logits.linear, logits.scale, x);
    return w.finish(std::move(notes));
}

}  // namespace cleave::importer::from_onnx
