// SPDX-License-Identifier: Apache-2.0
// The matchers: functions from a node to the meaning of its output, one file for each recovered
// operator. A matcher gives its meaning, or `unknown` with the reason; it never guesses.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "importer/onnx/recover/recovery.h"

namespace cleave::importer::from_onnx {

// A matcher reads one node whose inputs are all understood and at least one of which is an
// activation.
using Matcher = Meaning (*)(Recovery&, const Node&);
struct NamedMatcher {
    std::string_view op;
    Matcher match;
};

Meaning unknown(const Recovery& r, const Node& node, std::string_view why);

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

// ---- Functions of one value (elementwise.cpp)
const std::vector<double>& sample_points();
std::optional<Elementwise> as_elementwise(const Recovery& r, Ref value);
bool is_square(const Elementwise& e);
bool is_squared_relu(const Elementwise& e);
std::optional<Activation> activation_of(const Elementwise& e);

}  // namespace cleave::importer::from_onnx
