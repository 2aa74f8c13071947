// SPDX-License-Identifier: Apache-2.0
#include "planner/analysis/tensor_chain.h"

#include <algorithm>

#include <fmt/format.h>

#include "planner/plan/foreign_op.h"
#include "runtime/base/errors.h"

namespace cleave::planner {

using importer::Op;
using importer::OpKind;
using importer::TensorAttrs;
using importer::ValueId;

namespace {

const std::vector<int64_t>* find_numbers(const TensorAttrs& attrs, std::string_view name) {
    for (const importer::TensorAttribute& a : attrs.attributes)
        if (a.name == name) return &a.integers;
    return nullptr;
}

std::optional<int64_t> find_number(const TensorAttrs& attrs, std::string_view name) {
    const std::vector<int64_t>* all = find_numbers(attrs, name);
    return all && all->size() == 1 ? std::optional(all->front()) : std::nullopt;
}

int64_t product(const std::vector<int64_t>& dims) {
    int64_t n = 1;
    for (int64_t d : dims) n *= d;
    return n;
}

// Their kernels make the elements of their one result in the order of memory.
bool stores_in_order(const TensorAttrs& attrs) {
    constexpr std::string_view kInOrder[] = {"MatMul",           "MatMulInteger",
                                             "RMSNormalization", "DequantizeLinear",
                                             "QuantizeLinear",   "Gather",
                                             "Concat",           "ReduceMean",
                                             "ReduceSum",        "ReduceMax",
                                             "ReduceMin",        "GatherElements",
                                             "GatherND",         "Pad"};
    if (attrs.op_type == "Softmax") return find_number(attrs, "inner") == 1;
    return std::find(std::begin(kInOrder), std::end(kInOrder), attrs.op_type) != std::end(kInOrder);
}

// The element at an index is the one at the same place in memory.
bool is_in_place(const TensorMap& map, const TensorMap::Operand& x) {
    int64_t dense = 1;
    for (size_t d = map.dims.size(); d-- > 0; dense *= map.dims[d])
        if (x.strides[d] != dense) return false;
    return x.offset == 0;
}

}  // namespace

std::optional<TensorMap> read_tensor_map(const Op& op) {
    if (op.kind != OpKind::kTensor || foreign_op(op)) return std::nullopt;
    const auto& attrs = op.as<TensorAttrs>();
    const std::optional<int64_t> count = find_number(attrs, "operands");
    const std::vector<int64_t>* dims = find_numbers(attrs, "dims");
    if (!count || !dims || attrs.results.size() != 1 || *count < 1 ||
        *count != static_cast<int64_t>(attrs.operands.size()))
        return std::nullopt;
    TensorMap map{*dims, {}};
    for (int64_t i = 0; i < *count; ++i) {
        const std::string name = fmt::format("x{}", i);
        const auto found = std::find_if(attrs.operands.begin(), attrs.operands.end(),
                                        [&](const auto& o) { return o.name == name; });
        const std::vector<int64_t>* strides = find_numbers(attrs, fmt::format("strides{}", i));
        const std::optional<int64_t> offset = find_number(attrs, fmt::format("offset{}", i));
        if (found == attrs.operands.end() || !strides || strides->size() != dims->size() || !offset)
            return std::nullopt;
        map.operands.push_back({&*found, *strides, *offset});
    }
    return map;
}

std::optional<TensorChain> TensorChain::behind(const Op& producer) {
    if (producer.kind != OpKind::kTensor || foreign_op(producer)) return std::nullopt;
    const auto& attrs = producer.as<TensorAttrs>();
    if (attrs.results.size() != 1) return std::nullopt;
    TensorChain chain(product(attrs.results[0].shape));
    if (const std::optional<TensorMap> map = read_tensor_map(producer))
        return chain.add_rows(map->dims) ? std::optional(chain) : std::nullopt;
    return stores_in_order(attrs) ? std::optional(chain) : std::nullopt;
}

bool TensorChain::join(const Op& op, ValueId value) {
    const std::optional<TensorMap> map = read_tensor_map(op);
    if (!map || product(map->dims) != row_ends_.back()) return false;
    bool reads = false;
    for (const TensorMap::Operand& x : map->operands) {
        if (x.operand->index < 0 || op.inputs[static_cast<size_t>(x.operand->index)] != value)
            continue;
        if (!is_in_place(*map, x)) return false;
        reads = true;
    }
    return reads && add_rows(map->dims);
}

// False, and nothing is changed, where rows would end inside each other, or there would be too many
// dimensions.
bool TensorChain::add_rows(const std::vector<int64_t>& dims) {
    std::vector<int64_t> ends = row_ends_;
    int64_t end = 1;
    for (size_t d = dims.size(); d-- > 0;) ends.push_back(end *= dims[d]);
    std::sort(ends.begin(), ends.end());
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
    for (size_t i = 1; i < ends.size(); ++i)
        if (ends[i] % ends[i - 1] != 0) return false;
    if (ends.size() > kChainDims) return false;
    row_ends_ = std::move(ends);
    return true;
}

std::vector<int64_t> TensorChain::dims() const {
    std::vector<int64_t> dims;
    for (size_t i = row_ends_.size(); i-- > 1;) dims.push_back(row_ends_[i] / row_ends_[i - 1]);
    dims.push_back(row_ends_.front());
    return dims;
}

std::vector<int64_t> strides_along(const std::vector<int64_t>& chain_dims,
                                   const std::vector<int64_t>& dims,
                                   const std::vector<int64_t>& strides) {
    std::vector<int64_t> result(chain_dims.size(), 0);
    size_t own = dims.size();        // the operand's dimension that we are in, and behind it
    int64_t passed = 1, inside = 1;  // elements of chain dimensions so far; of them within `own`
    for (size_t d = chain_dims.size(); d-- > 0;) {
        if (chain_dims[d] == 1) continue;
        if (own == dims.size() || inside == dims[own]) {
            CLEAVE_CHECK(own > 0) << "a chain of more elements than its operand";
            --own;
            inside = 1;
        }
        result[d] = strides[own] * inside;
        inside *= chain_dims[d];
        passed *= chain_dims[d];
    }
    CLEAVE_CHECK(passed == product(dims))
        << "a chain of " << passed << " elements over " << product(dims);
    return result;
}

}  // namespace cleave::planner
