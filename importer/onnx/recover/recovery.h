// SPDX-License-Identifier: Apache-2.0
// The state of a recovery: reads a Model node by node and keeps what each value means. The matchers
// (matchers.h) find the meanings. In: a Model and the roles of its inputs. Out: terms, and the
// meaning of the graph's outputs.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "importer/onnx/probe/probe.h"
#include "importer/onnx/recover/rope_tables.h"
#include "importer/onnx/recover/term.h"

namespace cleave::importer::from_onnx {

// What a mask hides, found by evaluating it (see masks.cpp).
struct MaskMeaning {
    bool causal = false;
    int64_t window = 0;  // 0: none
    bool hides_padding = false;
    int64_t heads = 1;           // that it is given for, all alike; 1: for any number
    int64_t checked_tokens = 0;  // it may say something else for more of them; 0: it does not
    std::string refusal;         // not empty: it is none of these, and why
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
    RopeTables rope_tables{*this};
    bool assumes_right_padding = false;
    bool has_past = false;
    std::map<TermId, View> rotated_from;  // what a kRope term turns
    const Term& term(TermId id) const { return terms[id.index()]; }
    const ValueMeaning& meaning(Ref value) const {
        return value == kNone ? nothing_ : meanings_[value];
    }

    // ---- For the matchers
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

    // The meaning of an additive or boolean mask.
    MaskMeaning mask_meaning(const MaskUse& use);

    // The most tokens that every mask read so far is known for; 0: any number.
    int64_t longest_context = 0;

    // The positions at which a factor that depends on them is still the first one's; 0: all.
    int64_t scaled_alike = 0;

    // The graph takes an attention mask and does something with it: then no attention may go
    // without.
    bool padding_must_be_hidden() const;

    Probe& probe(int i) { return *probes_[i]; }
    Probe make_probe(Scenario scenario) const { return Probe(model, roles, std::move(scenario)); }
    // Sizes that the file fixes for every input; 0: free.
    int64_t fixed_batch = 0, fixed_tokens = 0;
    // The scenario with the sizes that the file fixes.
    Scenario possible(Scenario scenario) const;
    // One sequence whose last token is at that position: after a past where the file has one.
    Scenario at_position(int64_t position) const;
    // Whether the file's fixed length keeps a token from being at `position`: with a past nothing
    // does.
    bool beyond_file(int64_t position) const;
    // The `width` values for the token at `position` of an unpadded sequence (0: the last
    // dimension).
    std::optional<std::vector<double>> row_at(Ref value, int64_t position, int64_t width = 0);
    // ", because node 'x' (If) ...": the node that keeps a value from being evaluated; empty when
    // none is seen.
    std::string blocked_by(Ref value) const;
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
    std::map<std::tuple<TermId, int64_t, int64_t, double>, TermId> parts_;
    std::vector<int> current_trail_;
    int current_node_ = -1;
};

}  // namespace cleave::importer::from_onnx
