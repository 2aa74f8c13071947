// SPDX-License-Identifier: Apache-2.0
// MLIR text of one function over tensors, an operation a call: linalg.generic with its maps and
// body spelled out, the few tensor operations that move data, and IREE's transfers. Nothing in it
// is a constant tensor: constants that a compiler may hoist out of a function have no device there,
// so every table is a parameter with its own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/dtype.h"

namespace cleave::planner {

// Sizes that only a call knows: tokens of this pass, and of this and all passes before.
inline constexpr int64_t kTokens = -1, kTotal = -2;

struct MlirTensor {
    std::string ssa;             // "%17"
    std::vector<int64_t> shape;  // kTokens, kTotal or a number
    std::string element = "f32";
};

// An operand of `generic` and the loops that index it: "d0, d2".
struct MlirOperand {
    MlirTensor tensor;
    std::string_view loops;
};

// "f32", "f16", "bf16".
std::string mlir_element(DType dtype);
std::string mlir_float(double value);  // a literal of f32
std::string mlir_type(const MlirTensor& tensor);
// A string with its quotes, and what MLIR wants escaped.
std::string mlir_string(std::string_view text);

class MlirWriter {
public:
    // linalg.generic: `loops` has p (parallel) or r (reduction) for each; the result has `shape`
    // and is indexed by `result_loops`. The body reads operand i as %i0, %i1, ..., widened to f32,
    // and the accumulator as %acc; its last value is %y (f32). With `initial` the result starts as
    // that number.
    MlirTensor generic(std::vector<int64_t> shape, std::string_view loops,
                       std::string_view result_loops, const std::vector<MlirOperand>& operands,
                       std::string_view body, const std::string& initial = {});
    // One loop a dimension of the first operand; all have its shape.
    MlirTensor elementwise(const std::vector<MlirTensor>& operands, std::string_view body);

    // Another shape of the same elements; dimensions are split or joined, not both.
    MlirTensor split_last(const MlirTensor& x, const std::vector<int64_t>& parts);
    MlirTensor join_last(const MlirTensor& x, size_t kept);  // dimensions [0, kept) stay
    // [begin, begin + size) of one dimension.
    MlirTensor slice(const MlirTensor& x, size_t dimension, int64_t begin, int64_t size) {
        return slice(x, dimension, std::to_string(begin), size);
    }
    MlirTensor slice(const MlirTensor& x, size_t dimension, const std::string& begin, int64_t size);
    // `part` written into `x` from `offsets` on ("0", "%past").
    MlirTensor insert(const MlirTensor& part, const MlirTensor& x,
                      const std::vector<std::string>& offsets);
    MlirTensor empty(std::vector<int64_t> shape, std::string element = "f32");
    MlirTensor narrow(const MlirTensor& x, const std::string& element);  // f32 to a smaller type
    MlirTensor transfer(const MlirTensor& x, const std::string& device);
    MlirTensor load_global(const std::string& symbol, const MlirTensor& type, bool is_mutable);
    void store_global(const std::string& symbol, const MlirTensor& value);

    void comment(std::string_view text);
    const std::string& text() const { return text_; }

private:
    std::string fresh();
    void line(const std::string& text);

    std::string text_;
    int next_ = 0;
};

}  // namespace cleave::planner
