// SPDX-License-Identifier: Apache-2.0
// Reads a Model node by node and finds what each value means; the matchers (one file for each
// recovered operator) are functions from a node to the meaning of its output. In: a Model and the
// roles of its inputs. Out: terms, and the meaning of the graph's outputs.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "importer/onnx/probe/probe.h"
#include "importer/onnx/recover/term.h"

namespace cleave::importer::from_onnx {

// What a mask hides, found by evaluating it (see masks.cpp).
struct MaskMeaning {
    bool causal = false;
    int64_t window = 0;  // 0: none
    bool hides_padding = false;
    int64_t heads = 1;           // that it is given for, all alike; 1: for any number
    int64_t checked_tokens = 0;  // it may say something else for more of them; 0: it does not
    bool fits(int64_t num_heads) const { return heads == 1 || heads == num_heads; }
};

// Without a past, positions are those of a whole sequence, which has to be evaluated.
constexpr int64_t kLongestSequence = 10000;

class Recovery {
public:
    Recovery(const Model& model, std::vector<InputRole> roles);
    ~Recovery();

    // Reads all nodes. Values that no matcher understands become Unknown, with the first reason.
    void run();

    const Model& model;
    const std::vector<InputRole> roles;
    std::vector<Term> terms;
    std::vector<RopeTable>
        rope_tables;  // frequencies filled in; tables of weights through rope_weights
    std::vector<std::pair<WeightView, WeightView>> rope_weights;  // cos, sin; beside rope_tables
    bool assumes_right_padding = false;
    bool has_past = false;
    std::map<TermId, View> rotated_from;  // what a kRope term turns
    const Term& term(TermId id) const { return terms[id.index()]; }
    const ValueMeaning& meaning(Ref value) const {
        return value == kNone ? nothing_ : meanings_[value];
    }

    // ---- For the matchers
    // --------------------------------------------------------------------------
    template <class T>
    const T* get(Ref value) const {
        return value == kNone ? nullptr : std::get_if<T>(&meanings_[value].meaning);
    }
    bool is_known(Ref value) const { return get<Known>(value) || get<WeightView>(value); }
    std::string describe(const Node& node) const;

    // The dimension sizes of a value in both scenarios.
    std::optional<std::vector<Size>> sizes(Ref value);
    // A constant number (one element, the same in both scenarios).
    std::optional<double> number(Ref value);
    // Constant integers, the same in both scenarios.
    std::optional<std::vector<int64_t>> integers(Ref value);
    const Tensor* data(Ref value) { return probe(0).data(value); }  // in the first scenario

    // A view whose rows are tokens as the term that gives exactly its features, in order: makes a
    // part of a Linear or a Scale where needed. Invalid id: the view is no such thing.
    TermId materialize(const View& view, const Node& node);

    TermId add_term(Term term, const Node& node);
    View whole(TermId term) const;

    // The meaning of an additive or boolean mask; UserError naming the value's node when it is none
    // of causal, sliding window and padding.
    MaskMeaning mask_meaning(const MaskUse& use);

    // The most tokens that every mask read so far is known for; 0: any number.
    int64_t longest_context = 0;

    // The positions at which a factor that depends on them is still the first one's; 0: all.
    int64_t scaled_alike = 0;

    // The graph takes an attention mask and does something with it: then no attention may go
    // without.
    bool padding_must_be_hidden() const;

    // The rope table whose cos and sin those values are, at positions of the batch. Their rows have
    // `width` entries: one for each pair of features, or (`for_each_feature`) two alike for each,
    // side by side where the pairs are `interleaved`. Reason in `why` when there is none.
    RopeTableId rope_table(Ref cos, Ref sin, int64_t width, bool for_each_feature, bool interleaved,
                           std::string& why);
    // A stored row for each token of a file without a past whose length is fixed: positions were
    // folded into it.
    bool is_row_for_each_token(const WeightView& table) const;
    RopeTableId stored_rope_table(const WeightView& cos, const WeightView& sin);

    std::optional<RopeTable> computed_rope_table(Ref cos, Ref sin, int64_t width,
                                                 bool for_each_feature, bool interleaved,
                                                 std::string& why);
    const WeightView* table_of_rows(Ref rows);
    RopeTableId folded_rope_table(Ref cos, Ref sin, int64_t half);
    RopeTableId gathered_rope_table(Ref cos, Ref sin, int64_t half);

    Probe& probe(int i) { return *probes_[i]; }
    Probe make_probe(Scenario scenario) const { return Probe(model, roles, std::move(scenario)); }
    // Sizes that the file fixes for every input; 0: free.
    int64_t fixed_batch = 0, fixed_tokens = 0;
    // The scenario with the sizes that the file fixes.
    Scenario possible(Scenario scenario) const;
    // Whether the file's fixed length keeps a token from being at `position`: with a past nothing
    // does.
    bool beyond_file(int64_t position) const;
    // The `width` values for the token at `position` of an unpadded sequence (0: the last
    // dimension).
    std::optional<std::vector<double>> row_at(Ref value, int64_t position, int64_t width = 0);
    // ", because node 'x' (If) ...": the node that keeps a value from being evaluated; empty when
    // none is seen.
    std::string blocked_by(Ref value) const;
    // The value that a choice depending on positions (If) gives at the first ones, and how many
    // positions it holds for (0: all). Any other value is itself.
    Ref chosen_at_first(Ref value, int64_t& holds_below);
    // Whether every integer is the number of tokens before this step, or with it.
    bool counts_tokens(Ref value, bool with_new);
    // Whether the integers end with the position of the last token.
    bool row_at_is_position(Ref value);
    void set(const Node& node, size_t output, Meaning meaning, bool keep_trail = true);

    // The axis counted from the front; UserError when it is outside `rank` dimensions.
    int64_t axis_of(const Node& node, int64_t axis, size_t rank) const;

private:
    void read_node(const Node& node);
    void read_inputs();
    Meaning dispatch(const Node& node);

    std::vector<ValueMeaning> meanings_;
    const ValueMeaning nothing_{Unknown{"an input that is not given"}, {}};
    std::vector<std::unique_ptr<Probe>> probes_;
    std::map<int64_t, std::unique_ptr<Probe>> position_probes_;
    std::map<MaskUse, MaskMeaning> masks_;
    std::map<std::tuple<Ref, Ref, int64_t, bool, bool>, RopeTableId> tables_;
    std::map<std::tuple<TermId, int64_t, int64_t, double>, TermId> parts_;
    std::vector<int> current_trail_;
    int current_node_ = -1;
};

// A matcher reads one node whose inputs are all understood and at least one of which is an
// activation.
using Matcher = Meaning (*)(Recovery&, const Node&);
struct NamedMatcher {
    std::string_view op;
    Matcher match;
};

Meaning unknown(const Recovery& r, const Node& node, std::string_view why);

// Where to ask for what depends on the position: at some, and about the numbers that the value is
// computed from, where it may change.
std::set<int64_t> positions_to_ask(const Model& model, Ref value);

// The first position at which `holds(position)` is false: it is true at `good`, false at `bad`, and
// changes once between.
template <class Holds>
int64_t first_change(int64_t good, int64_t bad, Holds holds) {
    while (bad - good > 1) {
        const int64_t middle = good + (bad - good) / 2;
        (holds(middle) ? good : bad) = middle;
    }
    return bad;
}

// Meaning of a node all of whose inputs are constants: a view of a weight where it is one.
Meaning read_constant_node(Recovery& r, const Node& node);

// One file for each; the operators that it reads are in its table.
std::vector<NamedMatcher> layout_matchers();
std::vector<NamedMatcher> embedding_matchers();
std::vector<NamedMatcher> norm_matchers();
std::vector<NamedMatcher> linear_matchers();
std::vector<NamedMatcher> attention_matchers();
std::vector<NamedMatcher> fused_attention_matchers();
std::vector<NamedMatcher> rope_matchers();
std::vector<NamedMatcher> quantized_matchers();
std::vector<NamedMatcher> arithmetic_matchers();  // Add, Mul, ...: ask the files above in turn

// x [.., in] times weight [in, out], plus a bias.
Meaning linear(Recovery& r, const Node& node, const View& x, const WeightView& weight,
               const std::optional<WeightView>& bias);

// The Linear with a bias; invalid when it is none, has one, or the bias is no vector of its
// features.
TermId biased(Recovery& r, const Node& node, TermId product, const WeightView& bias);

// Normalises groups of features of `x`; gives the view of the result, laid out as x is.
Meaning finish_norm(Recovery& r, const Node& node, const View& x, int64_t group, double epsilon,
                    const WeightView& weight);

// DequantizeLinear of constants: a quantised weight.
Meaning read_dequantize(Recovery& r, const Node& node);

// The table of a GatherBlockQuantized; nothing, and `why`, when it is none that is supported.
std::optional<WeightView> block_quantized_table(Recovery& r, const Node& node, std::string& why);

// Parts of Add, Mul and the like, asked in turn by arithmetic.cpp; nothing: not mine.
std::optional<Meaning> match_norm_arithmetic(Recovery& r, const Node& node);
std::optional<Meaning> match_rope_arithmetic(Recovery& r, const Node& node);
std::optional<Meaning> match_score_arithmetic(Recovery& r, const Node& node);
std::optional<Meaning> match_integer_arithmetic(Recovery& r, const Node& node);
std::optional<Meaning> match_linear_arithmetic(Recovery& r, const Node& node);
std::optional<Meaning> match_gated_arithmetic(Recovery& r, const Node& node);
std::optional<Meaning> match_position_scale(Recovery& r, const Node& node);
std::optional<Meaning> match_attention_matmul(Recovery& r, const Node& node);
std::optional<Meaning> match_rope_concat(Recovery& r, const Node& node);
std::optional<Meaning> match_cache_concat(Recovery& r, const Node& node);

// ---- Elementwise functions (elementwise.cpp)
// ---------------------------------------------------------
const std::vector<double>& sample_points();
std::optional<Elementwise> as_elementwise(const Recovery& r, Ref value);
bool is_square(const Elementwise& e);
bool is_squared_relu(const Elementwise& e);
std::optional<Activation> activation_of(const Elementwise& e);

}  // namespace cleave::importer::from_onnx
