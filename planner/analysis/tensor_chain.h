// SPDX-License-Identifier: Apache-2.0
// Chains of elementwise operators over tensors that one launch computes. In: operators of kind
// kTensor. Out: which of them may follow which, and the rows that their kernel walks over.
// Invariants: each operator of a chain reads what the one before it makes element by element, in
// place, and makes as many elements; its other operands are walked by strides, so they may be
// broadcast, transposed or sliced.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "importer/graph/graph.h"

namespace cleave::planner {

// Dimensions that a kernel of elementwise operators walks over
// (codegen/templates/host/tensor_chain.h).
inline constexpr size_t kChainDims = 6;

// How an elementwise operator walks over its operands "x0", "x1", ..: the element at an index is
// at offset + sum of strides[d] * index[d]. The result is dense.
struct TensorMap {
    struct Operand {
        const importer::TensorOperand* operand = nullptr;
        std::vector<int64_t> strides;
        int64_t offset = 0;
    };
    std::vector<int64_t> dims;  // outermost first, none of them one
    std::vector<Operand> operands;
};

// Nothing for an operator that is not computed element by element, other compilers' among them.
std::optional<TensorMap> read_tensor_map(const importer::Op& op);

class TensorChain {
public:
    // Of one operator; nothing when no elementwise operator can join its launch: it has several
    // results, or its kernel makes them in another order than that of memory.
    static std::optional<TensorChain> behind(const importer::Op& producer);

    // Whether an operator that reads `value`, the chain's result, can be computed in the same
    // launch; then it joins.
    bool join(const importer::Op& op, importer::ValueId value);

    // What the kernel walks over, outermost first; the operands of all its operators have constant
    // strides along each.
    std::vector<int64_t> dims() const;

private:
    explicit TensorChain(int64_t elements) : row_ends_{elements} {}
    bool add_rows(const std::vector<int64_t>& dims);

    // Ascending; each divides the next, the last is the number of elements. A row of some operand
    // ends after so many.
    std::vector<int64_t> row_ends_;
};

// The strides along the dimensions of a chain of an operand that is walked over by `strides` of
// `dims`.
std::vector<int64_t> strides_along(const std::vector<int64_t>& chain_dims,
                                   const std::vector<int64_t>& dims,
                                   const std::vector<int64_t>& strides);

}  // namespace cleave::planner
