// SPDX-License-Identifier: Apache-2.0
// Tensor operators whose kernels are a page each.
#include "codegen/lower/tensor/tensor_kernels.h"
#include "runtime/base/errors.h"

namespace cleave::codegen {

TensorKernel lower_tensor_rms_norm(const StepReader& step) {
    TensorLowering l(step, "host/tensor_norm.h", "tensor_rms_norm", "TensorNormArgs");
    l.items(l.number("rows"));
    l.note("shapes: rows x features; both are arguments");
    l.type("X", l.find("X")->dtype);
    l.type("Scale", l.find("scale")->dtype);
    l.constant_real("kEpsilon", l.real("epsilon"));
    l.operand("X");
    l.operand("scale");
    l.result_in_order("Y");
    l.argument("features");
    l.argument("scales");
    return l.finish();
}

TensorKernel lower_tensor_rope(const StepReader& step) {
    TensorLowering l(step, "host/tensor_rope.h", "tensor_rope", "TensorRopeArgs");
    const int64_t heads = l.number("heads"), tokens = l.number("tokens"),
                  dim = l.number("head_dim");
    const bool packed = l.number("packed") != 0;
    l.items(l.number("batch") * tokens);
    l.note(fmt::format("shapes: {} features of a head turn; other sizes are arguments",
                       l.number("rotary")));
    l.type("T", l.find("X")->dtype);
    l.constant("kRotary", l.number("rotary"));
    l.flag("kInterleaved", l.number("interleaved") != 0);
    l.flag("kByPosition", l.find("position_ids") != nullptr);
    l.operand("X");
    l.operand("cos_cache");
    l.operand("sin_cache");
    l.operand("position_ids", DType::kInt64);
    l.result("Y");
    l.argument("tokens");
    l.argument("heads");
    l.argument("head_dim");
    l.argument("positions");
    l.argument("batch_stride", heads * tokens * dim);
    l.argument("head_stride", packed ? dim : tokens * dim);
    l.argument("token_stride", packed ? heads * dim : dim);
    return l.finish();
}

}  // namespace cleave::codegen
