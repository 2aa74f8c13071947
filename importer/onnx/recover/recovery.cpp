// SPDX-License-Identifier: Apache-2.0
#include "importer/onnx/recover/recovery.h"

#include <algorithm>
#include <unordered_map>

#include "importer/onnx/probe/evaluate.h"
#include "importer/onnx/recover/matchers.h"
#include "runtime/base/errors.h"

namespace cleave::importer::from_onnx {
namespace {

// Two scenarios that differ in every size, so that a size says what it is.
const Scenario kFirst{2, 5, 3, {}};
const Scenario kSecond{3, 7, 4, {}};

void append_unique(std::vector<int>& to, const std::vector<int>& from) {
    for (int n : from)
        if (std::find(to.begin(), to.end(), n) == to.end()) to.push_back(n);
}

const std::unordered_map<std::string_view, Matcher>& matcher_table() {
    static const auto kTable = [] {
        std::unordered_map<std::string_view, Matcher> table;
        for (const auto& matchers :
             {layout_matchers(), embedding_matchers(), norm_matchers(), linear_matchers(),
              attention_matchers(), fused_attention_matchers(), rope_matchers(),
              arithmetic_matchers(), quantized_matchers()})
            for (const NamedMatcher& m : matchers) table.emplace(m.op, m.match);
        return table;
    }();
    return kTable;
}

// Floating vectors and matrices are weights; leading dimensions of 1 do not count.
Meaning constant_meaning(const Constant& c, int index) {
    if (!c.is_floating() || c.dims.empty()) return Known{};
    Dims dims = c.dims;
    while (dims.size() > 2 && dims[0] == 1) dims.erase(dims.begin());
    if (c.dims.size() > 2 && dims.size() == 2 && dims[0] == 1) dims.erase(dims.begin());
    if (dims.size() > 2) return Known{};
    WeightView w;
    w.constant = index;
    w.vector = dims.size() == 1;
    w.rows = {0, dims[0]};
    if (!w.vector) w.columns = {0, dims[1]};
    return w;
}

// Operators whose result depends on their inputs' shapes alone.
bool reads_only_shapes(const Node& node) { return node.is("Shape") || node.is("Size"); }

}  // namespace

bool operator==(const WeightView& a, const WeightView& b) {
    return a.constant == b.constant && a.vector == b.vector && a.transposed == b.transposed &&
           a.rows == b.rows && a.columns == b.columns && a.added == b.added;
}

Recovery::Recovery(const Model& m, std::vector<InputRole> r)
    : model(m), roles(std::move(r)), meanings_(m.values.size()) {
    has_past = std::find(roles.begin(), roles.end(), InputRole::kPast) != roles.end();
    for (size_t i = 0; i < roles.size(); ++i)
        if (roles[i] == InputRole::kTokenIds) {
            const std::vector<Dim>& dims = model.inputs[i].dims;
            if (dims.size() == 2 && dims[0].is_static()) fixed_batch = dims[0].value;
            if (!dims.empty() && dims.back().is_static()) fixed_tokens = dims.back().value;
        }
    for (Scenario s : {kFirst, kSecond}) {
        if (!has_past) s.past = 0;
        probes_.push_back(std::make_unique<Probe>(model, roles, possible(s)));
    }
}

Recovery::~Recovery() = default;

Scenario Recovery::possible(Scenario s) const {
    if (fixed_batch > 0) s.batch = fixed_batch;
    if (fixed_tokens > 0) s.tokens = fixed_tokens;
    if (!s.padding.empty()) s.padding.resize(s.batch, 0);
    return s;
}

Scenario Recovery::at_position(int64_t position) const {
    return possible(has_past ? Scenario{1, 1, position, {}} : Scenario{1, position + 1, 0, {}});
}

bool Recovery::beyond_file(int64_t position) const {
    return fixed_tokens > 0 && !has_past && position >= fixed_tokens;
}

std::string Recovery::describe(const Node& node) const { return from_onnx::describe(model, node); }

int64_t Recovery::axis_of(const Node& node, int64_t axis, size_t rank) const {
    const auto n = static_cast<int64_t>(rank);
    if (axis < -n || axis >= n)
        throw UserError("{}: {}: axis {} is outside its {} dimensions", model.path, describe(node),
                        axis, n);
    return axis < 0 ? axis + n : axis;
}

Meaning unknown(const Recovery& r, const Node& node, std::string_view why) {
    return Unknown{fmt::format("{}: {}", r.describe(node), why)};
}

std::optional<std::vector<Size>> Recovery::sizes(Ref value) {
    const Dims *a = probes_[0]->shape(value), *b = probes_[1]->shape(value);
    if (!a || !b || a->size() != b->size()) return std::nullopt;
    std::vector<Size> sizes;
    for (size_t i = 0; i < a->size(); ++i) sizes.push_back({(*a)[i], (*b)[i]});
    return sizes;
}

std::string Recovery::blocked_by(Ref value) const {
    std::vector<Ref> stack{value};
    std::vector<bool> seen(model.values.size());
    while (!stack.empty()) {
        const Ref v = stack.back();
        stack.pop_back();
        if (v == kNone || seen[v]) continue;
        seen[v] = true;
        const Constant* c = model.constant_of(v);
        if (c && c->data.file.valid() && !model.files[c->data.file.index()].present)
            return fmt::format(", because '{}' lies in {}, which is absent", c->name,
                               model.files[c->data.file.index()].path);
        const Node* node = model.producer_of(v);
        if (!node) continue;
        if (node->is("DynamicQuantizeLinear"))
            return ", because " + describe(*node) +
                   " rounds it to 8 bits by the largest of all its numbers; quantise products with "
                   "stored weights alone (MatMulConstBOnly of ONNX Runtime's quantiser)";
        if (!find_rule(node->domain, node->op))
            return ", because " + describe(*node) + " depends on data or is not understood";
        if (!reads_only_shapes(*node)) stack.insert(stack.end(), node->in.begin(), node->in.end());
    }
    return "";
}

std::optional<double> Recovery::number(Ref value) {
    if (!is_known(value)) return std::nullopt;
    const Tensor *a = probes_[0]->data(value), *b = probes_[1]->data(value);
    if (!a || !b || a->count() != 1 || b->count() != 1 || a->at(0) != b->at(0)) return std::nullopt;
    return a->at(0);
}

std::optional<std::vector<int64_t>> Recovery::integers(Ref value) {
    if (!is_known(value)) return std::nullopt;
    const Tensor *a = probes_[0]->data(value), *b = probes_[1]->data(value);
    if (!a || !b || a->real || a->integers != b->integers) return std::nullopt;
    return a->integers;
}

std::optional<std::vector<double>> Recovery::row_at(Ref value, int64_t position, int64_t width) {
    if (beyond_file(position)) return std::nullopt;
    std::unique_ptr<Probe>& p = position_probes_[position];
    if (!p) p = std::make_unique<Probe>(model, roles, at_position(position));
    const Tensor* t = p->data(value);
    if (!t || !t->real || t->dims.empty()) return std::nullopt;
    if (width == 0) width = t->dims.back();
    const int64_t rows = p->scenario().tokens;
    if (t->count() < width * rows) return std::nullopt;
    // The row of that token, counted from the end: leading dimensions are 1 or the batch.
    const int64_t from_end = has_past ? rows : rows - position;
    const auto begin = t->reals.end() - width * from_end;
    return std::vector<double>(begin, begin + width);
}

View Recovery::whole(TermId id) const {
    const Scenario &a = probes_[0]->scenario(), &b = probes_[1]->scenario();
    return whole_view(id, term(id).features, {a.batch, b.batch}, {a.tokens, b.tokens});
}

TermId Recovery::add_term(Term t, const Node& node) {
    std::vector<int> nodes = current_trail_;
    if (current_node_ >= 0) append_unique(nodes, {current_node_});
    append_unique(nodes, t.nodes);
    t.nodes = std::move(nodes);
    if (t.features <= 0)
        throw UserError("{}: {} gives nothing: one of its dimensions is 0", model.path,
                        describe(node));
    terms.push_back(std::move(t));
    return TermId(terms.size() - 1);
}

TermId Recovery::materialize(const View& view, const Node& node) {
    std::optional<Range> range = feature_range(view);
    if (!range || !view.term.valid()) return {};
    const bool whole_term = range->begin == 0 && range->end == term(view.term).features;
    if (whole_term && view.scale == 1.0) return view.term;
    const std::tuple key(view.term, range->begin, range->end, view.scale);
    if (auto found = parts_.find(key); found != parts_.end()) return found->second;
    Term t = term(view.term);
    if (!whole_term) {
        if (t.kind != Term::kLinear) return {};
        const int64_t begin = t.weight.columns.begin;
        t.weight.columns = {begin + range->begin, begin + range->end};
        if (t.bias)
            t.bias->rows = {t.bias->rows.begin + range->begin, t.bias->rows.begin + range->end};
        t.features = range->size();
        TermId part;
        const std::tuple part_key(view.term, range->begin, range->end, 1.0);
        if (auto found = parts_.find(part_key); found != parts_.end()) {
            part = found->second;
        } else {
            terms.push_back(t);
            part = parts_[part_key] = TermId(terms.size() - 1);
        }
        if (view.scale == 1.0) return part;
        t = term(part);
        t.in = {part};
    } else {
        t.in = t.kind == Term::kEmbedding ? t.in : std::vector<TermId>{view.term};
    }
    if (t.kind == Term::kEmbedding) {
        t.scale *= view.scale;
    } else {
        t = Term{Term::kScale, t.in, t.features, {}, {}, {}, view.scale};
    }
    TermId scaled = add_term(std::move(t), node);
    return parts_[key] = scaled;
}

void Recovery::set(const Node& node, size_t output, Meaning meaning, bool keep_trail) {
    const Ref out = node.output(output);
    if (out == kNone) return;
    const bool finished = std::holds_alternative<Known>(meaning) ||
                          std::holds_alternative<WeightView>(meaning) ||
                          std::holds_alternative<Unknown>(meaning);
    ValueMeaning& value = meanings_[out];
    value.meaning = std::move(meaning);
    value.trail.clear();
    if (!finished && keep_trail) {
        value.trail = current_trail_;
        append_unique(value.trail, {current_node_});
    }
}

void Recovery::read_inputs() {
    for (size_t v = 0; v < model.values.size(); ++v)
        if (const int c = model.values[v].constant; c >= 0)
            meanings_[v].meaning = constant_meaning(model.constants[c], c);
    for (size_t i = 0; i < model.inputs.size(); ++i) {
        const ModelInput& input = model.inputs[i];
        Meaning& m = meanings_[input.value].meaning;
        if (roles[i] == InputRole::kTokenIds) {
            terms.push_back(Term{Term::kTokenIds, {}, 1});
            View v = whole(TermId(terms.size() - 1));
            v.axes.resize(input.dims.size());
            if (input.dims.size() == 1) v.axes = {whole(TermId(terms.size() - 1)).axes[1]};
            m = v;
        } else if (roles[i] == InputRole::kPast) {
            Term t{Term::kPast, {}, 1};
            t.input = static_cast<int>(i);
            View v;
            v.axes.resize(input.dims.size());
            for (size_t a = input.dims.size(); a-- > 0;) {
                const Dim& d = input.dims[a];
                if (d.is_static() && d.value <= 0) {
                    throw UserError("{}: the graph input '{}' has a dimension of 0", model.path,
                                    model.values[input.value].name);
                } else if (a == 0 && d.is_static() && d.value == fixed_batch) {
                    v.axes[a] = {{Factor::kBatch, {fixed_batch, fixed_batch}, 0}};
                } else if (d.is_static()) {
                    if (d.value != 1)
                        v.axes[a] = {{Factor::kFeature, {d.value, d.value}, t.features}};
                    t.features *= d.value;
                } else if (a == 0) {
                    v.axes[a] = {{Factor::kBatch,
                                  {probes_[0]->scenario().batch, probes_[1]->scenario().batch},
                                  0}};
                } else {
                    Size n{kFirst.past, kSecond.past};
                    for (int s : {0, 1})
                        if (input.static_cache) n[s] += probes_[s]->scenario().tokens;
                    v.axes[a] = {{Factor::kPast, n, 0}};
                }
            }
            terms.push_back(t);
            v.term = TermId(terms.size() - 1);
            m = v;
        } else if (roles[i] == InputRole::kOther) {
            const auto reader =
                std::find_if(model.nodes.begin(), model.nodes.end(), [&](const Node& node) {
                    return std::find(node.in.begin(), node.in.end(), input.value) != node.in.end();
                });
            m = Unknown{fmt::format(
                "the graph input '{}'{} is none of token ids, attention mask, positions and cached "
                "keys or values",
                model.values[input.value].name,
                reader == model.nodes.end() ? "" : ", which " + describe(*reader) + " reads,")};
        } else {
            m = Known{};
        }
    }
}

Meaning Recovery::dispatch(const Node& node) {
    bool all_known = true;
    for (Ref in : node.in) {
        if (in == kNone) continue;
        if (const Unknown* u = get<Unknown>(in); u && !reads_only_shapes(node)) return *u;
        if (const View* v = get<View>(in); v && v->axes.empty() && !reads_only_shapes(node))
            return unknown(*this, node, "reads a single number of an activation");
        all_known = all_known && is_known(in);
    }
    if (reads_only_shapes(node)) return Known{};
    if (all_known) return read_constant_node(*this, node);
    if (!node.domain.empty() && node.domain != "com.microsoft")
        return unknown(*this, node, "operators of this domain are not supported");
    auto found = matcher_table().find(node.op);
    if (found == matcher_table().end())
        return unknown(*this, node, "this operator is not one that a Llama needs");
    return found->second(*this, node);
}

void Recovery::run() {
    read_inputs();
    for (size_t i = 0; i < model.nodes.size(); ++i) {
        current_node_ = static_cast<int>(i);
        current_trail_.clear();
        for (Ref in : model.nodes[i].in)
            if (in != kNone) append_unique(current_trail_, meanings_[in].trail);
        read_node(model.nodes[i]);
    }
}

void Recovery::read_node(const Node& node) {
    const size_t terms_before = terms.size();
    Meaning m = dispatch(node);
    const bool finished = terms.size() > terms_before;
    const bool failed = std::holds_alternative<Unknown>(m);
    // Outputs beyond the first are set by the matchers; what they leave is unknown for the same
    // reason, or for having no meaning.
    for (size_t i = 1; i < node.out.size(); ++i)
        if (node.out[i] != kNone) {
            if (failed)
                set(node, i, m);
            else if (std::holds_alternative<Known>(m))
                set(node, i, Known{});
            else if (const Unknown* u = get<Unknown>(node.out[i]); u && u->reason.empty())
                set(node, i,
                    unknown(*this, node, fmt::format("its output {} is not understood", i)));
        }
    set(node, 0, std::move(m), !finished);
}

}  // namespace cleave::importer::from_onnx
