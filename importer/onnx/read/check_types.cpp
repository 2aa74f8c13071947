// SPDX-License-Identifier: Apache-2.0
// Element types, as far as they are plain to see: an operator whose operands must have one type and
// do not is refused by name. What is not known here stays unknown and is not judged.
#include <algorithm>
#include <limits>
#include <string_view>

#include "importer/onnx/read/passes.h"
#include "runtime/base/errors.h"

namespace cleave::importer::from_onnx {
namespace {

using T = onnx::TensorProto;
constexpr int32_t kUnknownType = T::UNDEFINED;

bool is_one_of(const Node& node, std::initializer_list<std::string_view> ops) {
    return node.domain.empty() && std::find(ops.begin(), ops.end(), node.op) != ops.end();
}

std::vector<size_t> all_inputs(const Node& node) {
    std::vector<size_t> indices;
    for (size_t i = 0; i < node.in.size(); ++i) indices.push_back(i);
    return indices;
}

// Lists of operands that share one type.
std::vector<std::vector<size_t>> of_one_type(const Node& node) {
    if (is_one_of(node, {"Add", "Sub", "Mul", "Div", "MatMul", "Gemm", "Concat", "Min", "Max",
                         "Mod", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And",
                         "Or", "Xor", "Range"}))
        return {all_inputs(node)};
    if (node.is("Where")) return {{1, 2}};
    if (node.is("Attention")) return {{0, 1, 4}, {2, 5}};
    if (node.is("RotaryEmbedding")) return {{0, 1, 2}};
    if (node.is_contrib("GroupQueryAttention")) return {{0, 1, 2}, {3, 4}};
    return {};
}

// Types that an operand must be one of, by the operator; empty: not judged.
std::vector<int32_t> wanted(const Node& node, size_t i) {
    const bool index = (is_one_of(node, {"Gather", "GatherElements"}) && i == 1) ||
                       (node.is("GatherND") && i == 1);
    if (index) return {T::INT32, T::INT64};
    if (i == 1 && is_one_of(node, {"Reshape", "Expand", "Tile", "Unsqueeze", "Squeeze", "Split"}))
        return {T::INT64};
    if (i == 0 && (node.is("Where") || node.is("Not"))) return {T::BOOL};
    if (is_one_of(node, {"And", "Or", "Xor"})) return {T::BOOL};
    if (i == 0 && node.is("If")) return {T::BOOL};
    if (i == 3 && node.is("Attention"))
        return {T::BOOL, T::FLOAT, T::FLOAT16, T::BFLOAT16, T::DOUBLE};
    if (node.is_contrib("GroupQueryAttention") && (i == 5 || i == 6)) return {T::INT32};
    if (i == 0 &&
        is_one_of(node, {"Softmax", "Sigmoid", "Sqrt", "Cos", "Sin", "Tanh", "Erf", "Exp",
                         "Reciprocal", "RMSNormalization", "LayerNormalization", "Gelu", "Swish"}))
        return {T::FLOAT, T::FLOAT16, T::BFLOAT16, T::DOUBLE};
    return {};
}

class Types {
public:
    explicit Types(const Model& model) : model_(model), types_(model.values.size(), kUnknownType) {
        for (size_t v = 0; v < model.values.size(); ++v) {
            if (const int c = model.values[v].constant; c >= 0)
                types_[v] = model.constants[c].elem_type;
            if (const int i = model.values[v].input; i >= 0) types_[v] = model.inputs[i].elem_type;
        }
    }

    void run() {
        for (const Node& node : model_.nodes) {
            check(node);
            infer(node);
        }
    }

private:
    int32_t type(Ref v) const { return v == kNone ? kUnknownType : types_[v]; }

    void check(const Node& node) const {
        if (node.is("Cast")) {
            const int64_t to = node.integer("to", kUnknownType);
            if (to <= T::UNDEFINED || to > std::numeric_limits<int32_t>::max() ||
                !T::DataType_IsValid(static_cast<int>(to)))
                throw UserError("{}: {} casts to type {}, which ONNX does not have", model_.path,
                                describe(model_, node), to);
        }
        for (const std::vector<size_t>& alike : of_one_type(node)) check_alike(node, alike);
        for (size_t i = 0; i < node.in.size(); ++i) {
            const std::vector<int32_t> types = wanted(node, i);
            const int32_t given = type(node.in[i]);
            if (types.empty() || given == kUnknownType ||
                std::find(types.begin(), types.end(), given) != types.end())
                continue;
            throw UserError("{}: {} cannot take '{}', whose type is {}", model_.path,
                            describe(model_, node), model_.values[node.in[i]].name,
                            elem_type_name(given));
        }
    }

    void check_alike(const Node& node, const std::vector<size_t>& operands) const {
        Ref seen = kNone;
        for (size_t i : operands) {
            const Ref v = node.input(i);
            if (type(v) == kUnknownType) continue;
            if (seen != kNone && type(seen) != type(v))
                throw UserError("{}: {} takes '{}' ({}) and '{}' ({}), which must have one type",
                                model_.path, describe(model_, node), model_.values[seen].name,
                                elem_type_name(type(seen)), model_.values[v].name,
                                elem_type_name(type(v)));
            seen = v;
        }
    }

    // The type of every output, or of the first alone.
    void infer(const Node& node) {
        if (node.out.empty()) return;
        if (is_one_of(node, {"Shape", "Size", "NonZero", "ArgMax", "ArgMin"}))
            return set(node, T::INT64);
        if (is_one_of(node, {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And",
                             "Or", "Xor", "Not", "IsNaN", "IsInf"}))
            return set(node, T::BOOL);
        if (node.is("Cast"))
            return set(node, static_cast<int32_t>(node.integer("to", kUnknownType)));
        if (node.is("CastLike")) return set(node, type(node.input(1)));
        if (node.is("Where")) return set(node, type(node.input(1)));
        if (node.is_contrib("GroupQueryAttention") || node.is_contrib("MatMulNBits"))
            return set(node, type(node.input(0)));
        if (node.is("MatMulInteger")) return set(node, T::INT32);
        if (node.is("ConstantOfShape")) {
            const onnx::AttributeProto* a = node.attribute("value");
            return set(node, a && a->has_t() ? a->t().data_type() : static_cast<int32_t>(T::FLOAT));
        }
        if (is_one_of(node, {"Add",
                             "Sub",
                             "Mul",
                             "Div",
                             "Pow",
                             "MatMul",
                             "Gemm",
                             "Concat",
                             "Min",
                             "Max",
                             "Mod",
                             "Range",
                             "Reshape",
                             "Expand",
                             "Tile",
                             "Unsqueeze",
                             "Squeeze",
                             "Flatten",
                             "Transpose",
                             "Slice",
                             "Gather",
                             "GatherND",
                             "GatherElements",
                             "Softmax",
                             "Sigmoid",
                             "Sqrt",
                             "Neg",
                             "Abs",
                             "Cos",
                             "Sin",
                             "Tanh",
                             "Erf",
                             "Exp",
                             "Reciprocal",
                             "ReduceMean",
                             "ReduceSum",
                             "ReduceMax",
                             "CumSum",
                             "Identity",
                             "Trilu",
                             "RMSNormalization",
                             "LayerNormalization",
                             "ScatterND",
                             "TensorScatter",
                             "RotaryEmbedding",
                             "Attention",
                             "Clip",
                             "Gelu",
                             "Swish"}))
            return set(node, type(node.input(0)));
        if (node.is("Split"))
            for (Ref out : node.out)
                if (out != kNone) types_[out] = type(node.input(0));
    }

    void set(const Node& node, int32_t type) {
        if (node.out[0] != kNone) types_[node.out[0]] = type;
    }

    const Model& model_;
    std::vector<int32_t> types_;
};

}  // namespace

void check_types(const Model& model) { Types(model).run(); }

}  // namespace cleave::importer::from_onnx
