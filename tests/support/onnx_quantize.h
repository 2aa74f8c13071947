// SPDX-License-Identifier: Apache-2.0
// Rewrites an f32 ONNX Llama with its matrices quantised, as quantisation tools write it:
// MatMulNBits (and GatherBlockQuantized for the embedding), DequantizeLinear before each MatMul, or
// DynamicQuantizeLinear and MatMulInteger. For the tests of every form, and to try a quantised form
// of one's own model.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/dtype.h"

namespace cleave::test {

struct QuantizeOptions {
    enum class Form : uint8_t { kMatMulNBits, kDequantizeLinear, kMatMulInteger };
    enum class ZeroPoints : uint8_t { kNone, kInteger, kFloating };
    Form form = Form::kMatMulNBits;
    DType code = DType::kUInt4;  // uint4, uint8; DequantizeLinear: also int4, int8, f8e4m3;
                                 // MatMulInteger: int8, uint8
    int64_t block = 32;          // input features that share a scale; 0: all of an output feature
    ZeroPoints zero_points = ZeroPoints::kNone;
    bool one_scale = false;  // for the whole matrix; DequantizeLinear and MatMulInteger
    bool embedding = false;  // MatMulNBits: the embedding's table too, shared with a tied lm_head
};

// Reads the model at `from`, whose weights are inline, and writes `to`. UserError when the form
// cannot express the options, or the model's opset is older than the form (blocks and int4 of
// DequantizeLinear: 21).
void quantize_onnx(const std::string& from, const std::string& to, const QuantizeOptions& options);

}  // namespace cleave::test
