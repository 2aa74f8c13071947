// SPDX-License-Identifier: Apache-2.0
// The verifier's own rules for launches of several operators over tensors: one whose kernel makes
// its result in order, and elementwise ones, each of which reads the one before it in place; rows
// of all of them end at common places.
#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "planner/plan/foreign_op.h"
#include "planner/verify/walk.h"

namespace cleave::planner::verify {
namespace {

using importer::Op;
using importer::OpKind;
using importer::TensorAttrs;
using importer::TensorOperand;

constexpr size_t kMostDims = 6;  // that the kernel walks over
constexpr int64_t kMostElements = int64_t{1} << 40;

using Numbers = std::map<std::string_view, const std::vector<int64_t>*>;

Numbers numbers_of(const TensorAttrs& attrs) {
    Numbers numbers;
    for (const importer::TensorAttribute& a : attrs.attributes) numbers[a.name] = &a.integers;
    return numbers;
}

// Elements of a shape; zero for one that makes no sense.
int64_t elements_of(const std::vector<int64_t>& shape) {
    int64_t n = 1;
    for (int64_t d : shape)
        if (d < 1 || __builtin_mul_overflow(n, d, &n) || n > kMostElements) return 0;
    return n;
}

// One operand of an elementwise operator: its number is the last character of its name.
struct Walked {
    const TensorOperand* operand;
    const std::vector<int64_t>* strides;
    int64_t offset;
};

bool stays_inside(const std::vector<int64_t>& dims, const Walked& x) {
    __int128 least = x.offset, most = x.offset;
    for (size_t d = 0; d < dims.size(); ++d) {
        const __int128 far = static_cast<__int128>((*x.strides)[d]) * (dims[d] - 1);
        (far < 0 ? least : most) += far;
    }
    return least >= 0 && most < elements_of(x.operand->shape);
}

bool walks_in_place(const std::vector<int64_t>& dims, const Walked& x) {
    int64_t behind = elements_of(dims);
    for (size_t d = 0; d < dims.size(); ++d) {
        behind /= dims[d];
        if ((*x.strides)[d] != behind) return false;
    }
    return x.offset == 0;
}

// The dimensions and operands of an elementwise operator; empty operands for any other.
struct Elementwise {
    const std::vector<int64_t>* dims = nullptr;
    std::vector<Walked> operands;
};
Elementwise elementwise_of(const Op& op) {
    const auto& attrs = op.as<TensorAttrs>();
    const Numbers numbers = numbers_of(attrs);
    const auto get = [&](const std::string& name) {
        const auto found = numbers.find(name);
        return found == numbers.end() ? nullptr : found->second;
    };
    const auto *count = get("operands"), *dims = get("dims");
    if (foreign_op(op) || !count || !dims ||
        *count != std::vector<int64_t>{std::ssize(attrs.operands)} || attrs.results.size() != 1 ||
        op.outputs.size() != 1 || attrs.operands.size() > 3 || elements_of(*dims) == 0 ||
        elements_of(*dims) != elements_of(attrs.results[0].shape))
        return {};
    Elementwise map{dims, {}};
    for (const TensorOperand& o : attrs.operands) {
        const std::string number = o.name.substr(std::min<size_t>(1, o.name.size()));
        const auto *strides = get("strides" + number), *offset = get("offset" + number);
        if (!strides || strides->size() != dims->size() || !offset || offset->size() != 1)
            return {};
        map.operands.push_back({&o, strides, offset->front()});
        if (!stays_inside(*dims, map.operands.back())) return {};
    }
    return map;
}

// Whether the kernel of an operator that is not elementwise makes its one result from the front to
// the end.
bool makes_in_order(const Op& op) {
    static const std::set<std::string_view> kKnown{
        "MatMul",         "MatMulInteger", "RMSNormalization", "DequantizeLinear", "Concat",
        "QuantizeLinear", "Gather",        "GatherElements",   "GatherND",         "Pad",
        "Softmax"};
    const auto& attrs = op.as<TensorAttrs>();
    if (foreign_op(op) || attrs.results.size() != 1 || op.outputs.size() != 1) return false;
    if (attrs.op_type == "Softmax") {
        const auto inner = numbers_of(attrs)["inner"];
        return inner && *inner == std::vector<int64_t>{1};
    }
    return attrs.op_type.starts_with("Reduce") || kKnown.contains(attrs.op_type);
}

// Whether the operator reads the result of the one before it in place, and of the launch nothing
// else.
bool follows(const Graph& graph, const Compute& compute, size_t i, const Elementwise& map) {
    const Op& op = graph.op(compute.ops[i]);
    const ValueId before = graph.op(compute.ops[i - 1]).outputs[0];
    for (ValueId v : op.inputs)
        for (size_t j = 0; j + 1 < i; ++j)
            if (v == graph.op(compute.ops[j]).outputs[0]) return false;
    bool reads = false;
    for (const Walked& x : map.operands) {
        if (x.operand->index < 0 || op.inputs[static_cast<size_t>(x.operand->index)] != before)
            continue;
        if (!walks_in_place(*map.dims, x) ||
            elements_of(*map.dims) != elements_of(x.operand->shape))
            return false;
        reads = true;
    }
    return reads;
}

}  // namespace

bool tensors_fit(const Graph& graph, const Compute& compute) {
    std::set<int64_t> row_ends;
    for (size_t i = 0; i < compute.ops.size(); ++i) {
        const Op& op = graph.op(compute.ops[i]);
        if (op.kind != OpKind::kTensor) return false;
        if (compute.ops.size() == 1) return true;
        const Elementwise map = elementwise_of(op);
        if (i == 0 && map.operands.empty() && !makes_in_order(op)) return false;
        if (i > 0 && (map.operands.empty() || !follows(graph, compute, i, map))) return false;
        int64_t end = 1;
        for (size_t d = map.operands.empty() ? 0 : map.dims->size(); d-- > 0;)
            row_ends.insert(end *= (*map.dims)[d]);
    }
    int64_t inner = 1;
    for (int64_t end : row_ends) {
        if (end % inner != 0) return false;
        inner = end;
    }
    return !compute.ops.empty() && row_ends.size() <= kMostDims;
}

}  // namespace cleave::planner::verify
