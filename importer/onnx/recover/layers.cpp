// SPDX-License-Identifier: Apache-2.0
#include "importer/onnx/recover/layers.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "importer/onnx/recover/graph_writer.h"
#include "runtime/base/errors.h"

namespace cleave::importer::from_onnx {
namespace {

struct Layer {
    TermId input, input_norm, q_linear, k_linear, v_linear, q_norm, k_norm, q_rope, k_rope, k_cache,
        v_cache;
    TermId attention, o_linear, o_scale, attention_residual;
    TermId post_norm, gate, up, gated, down, down_scale, mlp_residual;
};

class LayerReader {
public:
    explicit LayerReader(Recovery& r) : r_(r) {}

    Layer read(TermId out) {
        Layer l;
        l.mlp_residual = out;
        std::tie(l.attention_residual, l.down, l.down_scale) = residual(out, Term::kGated);
        l.gated = input(l.down);
        l.gate = input(l.gated, 0);
        l.up = input(l.gated, 1);
        want(l.gate, Term::kLinear, "the gate must be a Linear of the layer's second norm");
        want(l.up, Term::kLinear, "the up projection must be a Linear of the layer's second norm");
        l.post_norm = input(l.gate);
        want(l.post_norm, Term::kNorm, "the MLP must read an RMSNorm");
        if (input(l.up) != l.post_norm)
            refuse(l.up, "gate and up projections read different values");
        if (input(l.post_norm) != l.attention_residual)
            refuse(l.post_norm,
                   "the MLP's norm must read the value that the MLP's result is added to");
        std::tie(l.input, l.o_linear, l.o_scale) = residual(l.attention_residual, Term::kAttention);
        l.attention = input(l.o_linear);
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

    // sum = stream + [scale] Linear(core): gives the stream, the Linear and the Scale.
    std::tuple<TermId, TermId, TermId> residual(TermId sum, Term::Kind core) const {
        if (kind(sum) == Term::kAdd)
            for (size_t i : {1, 0}) {
                TermId branch = input(sum, i), scale;
                if (kind(branch) == Term::kScale) {
                    scale = branch;
                    branch = input(branch);
                }
                if (kind(branch) == Term::kLinear && kind(input(branch)) == core)
                    return {input(sum, 1 - i), branch, scale};
            }
        refuse(sum, core == Term::kGated
                        ? "expected the sum of the residual stream and a gated MLP"
                        : "expected the sum of the residual stream and an attention block");
    }

    // The projection behind rope and per-head norm.
    void read_projection(TermId from, TermId& rope, TermId& norm, TermId& linear) const {
        if (kind(from) == Term::kRope) {
            rope = from;
            from = input(from);
        }
        if (kind(from) == Term::kNorm) {
            norm = from;
            from = input(from);
        }
        want(from, Term::kLinear,
             "queries, keys and values must be Linears of the layer's first norm");
        linear = from;
    }

    void read_attention(Layer& l) const {
        l.k_cache = input(l.attention, 1);
        l.v_cache = input(l.attention, 2);
        TermId none_rope, none_norm;
        read_projection(input(l.attention, 0), l.q_rope, l.q_norm, l.q_linear);
        read_projection(input(l.k_cache), l.k_rope, l.k_norm, l.k_linear);
        read_projection(input(l.v_cache), none_rope, none_norm, l.v_linear);
        if (none_rope.valid() || none_norm.valid())
            refuse(input(l.v_cache), "the values are rotated or normalised");
        if (l.q_rope.valid() != l.k_rope.valid())
            refuse(l.attention, fmt::format("only the {} are rotated (RoPE)",
                                            l.q_rope.valid() ? "queries" : "keys"));
        if (l.q_rope.valid() &&
            !(r_.term(l.q_rope).rope.table == r_.term(l.k_rope).rope.table &&
              r_.term(l.q_rope).rope.rotary_dim == r_.term(l.k_rope).rope.rotary_dim &&
              r_.term(l.q_rope).rope.interleaved == r_.term(l.k_rope).rope.interleaved))
            refuse(l.attention, "queries and keys are rotated differently");
        l.input_norm = input(l.q_linear);
        want(l.input_norm, Term::kNorm, "attention must read an RMSNorm");
        if (input(l.k_linear) != l.input_norm)
            refuse(l.k_linear,
                   "the keys are made from another value than the queries (another layer's?)");
        if (input(l.v_linear) != l.input_norm)
            refuse(l.v_linear,
                   "the values are made from another value than the queries (another layer's?)");
        if (input(l.input_norm) != l.input)
            refuse(l.input_norm,
                   "attention's norm must read the value that its result is added to");
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

    // present.i must be what past.i grows into: in the same order among the outputs as among the inputs.
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
        if (presents.empty()) return;
        for (size_t i = 0; i < presents.size() || i < pasts.size(); ++i)
            if (i >= presents.size() || i >= pasts.size() || presents[i] != pasts[i])
                throw UserError(
                    "{}: the caches that the graph gives do not stand in the order of those it "
                    "takes ('{}' is "
                    "not what becomes of '{}'); a layer would read another one's past",
                    r_.model.path, i < presents.size() ? cache_output_name(i) : "nothing",
                    i < pasts.size() ? r_.model.values[r_.model.inputs[pasts[i]].value].name
                                     : "nothing");
    }

private:
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

// The logits: the one output that is a Linear of features that no cache holds.
TermId find_logits(Recovery& r, std::vector<std::string>& notes) {
    TermId logits;
    std::string reason;
    for (Ref out : r.model.outputs) {
        if (const Unknown* u = r.get<Unknown>(out)) {
            if (reason.empty()) reason = u->reason;
            continue;
        }
        const View* v = r.get<View>(out);
        if (!v || r.term(v->term).kind == Term::kCache) continue;
        if (r.term(v->term).kind == Term::kLinear && v->scale == 1.0 && is_token_rows(*v) &&
            !logits.valid())
            logits = v->term;
        else
            notes.push_back("the extra output '" + r.model.values[out].name + "' is not computed");
    }
    if (logits.valid() && reason.empty()) return logits;
    if (reason.empty())
        reason =
            "no output gives logits (a Linear of the last norm); export the model with its "
            "language-model head";
    throw UserError("{}: {}", r.model.path, reason);
}

}  // namespace

Graph build_graph(Recovery& r, Model& model) {
    std::vector<std::string> notes = model.notes;
    const TermId logits = find_logits(r, notes);
    LayerReader reader(r);
    CacheCheck caches(r, reader);
    TermId norm = r.term(logits).in.at(0), select;
    if (r.term(norm).kind == Term::kSelect) {
        select = norm;
        norm = r.term(norm).in.at(0);
    }
    if (r.term(norm).kind != Term::kNorm)
        reader.refuse(logits, "logits must be a Linear of the last RMSNorm");
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
        const Layer& l = layers[n];
        w.begin_layer(static_cast<int>(n));
        const ValueId normed = w.norm("input_norm", l.input_norm, x);
        ValueId q = w.linear("q_proj", l.q_linear, normed);
        ValueId k = w.linear("k_proj", l.k_linear, normed);
        const ValueId v = w.linear("v_proj", l.v_linear, normed);
        if (l.q_norm.valid()) q = w.norm("q_norm", l.q_norm, q);
        if (l.k_norm.valid()) k = w.norm("k_norm", l.k_norm, k);
        if (l.q_rope.valid()) q = w.rope("q_rope", l.q_rope, q);
        if (l.k_rope.valid()) k = w.rope("k_rope", l.k_rope, k);
        const ValueId state = w.kv_append(l.attention, l.k_cache, l.v_cache, k, v);
        ValueId y = w.attention(l.attention, q, state);
        y = w.linear("o_proj", l.o_linear, y);
        if (l.o_scale.valid()) y = w.scale("attention_scale", l.o_scale, y);
        x = w.add("attention_residual", l.attention_residual, x, y);
        const ValueId normed2 = w.norm("post_norm", l.post_norm, x);
        const ValueId gate = w.linear("gate_proj", l.gate, normed2);
        const ValueId up = w.linear("up_proj", l.up, normed2);
        y = w.linear("down_proj", l.down, w.gated(l.gated, gate, up));
        if (l.down_scale.valid()) y = w.scale("mlp_scale", l.down_scale, y);
        x = w.add("mlp_residual", l.mlp_residual, x, y);
    }
    w.begin_layer(static_cast<int>(layers.size()), "");
    x = w.norm("final_norm", norm, w.select(select, x));
    w.logits(logits, x);
    return w.finish(std::move(notes));
}

}  // namespace cleave::importer::from_onnx
