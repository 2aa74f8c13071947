// SPDX-License-Identifier: Apache-2.0
// How one ONNX operator is evaluated by a Probe: a table from the operator's name to a function. A
// function sets the outputs' shapes, and their data where it is wanted and can be had; what it does
// not set stays unknown. One file for each family of operators; each registers its functions in
// `find_rule`'s table.
#pragma once

#include <string_view>
#include <vector>

#include "importer/onnx/probe/probe.h"

namespace cleave::importer::from_onnx {

class Evaluation {
public:
    Evaluation(Probe& probe, const Node& node, bool with_data)
        : probe_(probe), node(node), with_data(with_data) {}

    const Dims* shape(size_t i) {
        return node.input(i) == kNone ? nullptr : probe_.shape(node.input(i));
    }
    const Tensor* data(size_t i) {
        return node.input(i) == kNone ? nullptr : probe_.data(node.input(i));
    }
    bool given(size_t i) const { return node.input(i) != kNone; }
    size_t num_inputs() const { return node.in.size(); }
    const Constant* constant(size_t i) const { return probe_.model_.constant_of(node.input(i)); }
    const Model& model() const { return probe_.model_; }

    void set_shape(size_t i, Dims dims);
    void set_data(size_t i, Tensor tensor);  // and the shape

    // Integers of an input, or of the attribute of that name (older opsets).
    std::optional<std::vector<int64_t>> integers(size_t input, std::string_view attribute);

private:
    Probe& probe_;

public:
    const Node& node;
    const bool with_data;
};

using Rule = void (*)(Evaluation&);

struct NamedRule {
    std::string_view op;
    Rule rule;
};

// Largest tensor, in elements, that is evaluated.
constexpr int64_t kMostElements = int64_t{1} << 23;

Rule find_rule(std::string_view domain, std::string_view op);

std::vector<NamedRule> elementwise_rules();
std::vector<NamedRule> layout_rules();    // reshape, transpose, slice, gather, concat, ...
std::vector<NamedRule> creation_rules();  // shape, range, constant of shape, ...
std::vector<NamedRule> reduction_rules();
std::vector<NamedRule> activation_rules();  // shapes of what only activations meet

}  // namespace cleave::importer::from_onnx
