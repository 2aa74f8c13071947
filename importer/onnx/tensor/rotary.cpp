// SPDX-License-Identifier: Apache-2.0
// RotaryEmbedding of the ONNX standard: cos and sin from tables by position, or one row for each
// token.
#include "importer/onnx/tensor/tensor_reader.h"

namespace cleave::importer::from_onnx {

void read_rotary_embedding(TensorReader& r) {
    const Node& node = r.node();
    const TensorType& x = r.operand(0, "X");
    const TensorType &cos = r.operand(1, "cos_cache"), &sin = r.operand(2, "sin_cache");
    r.require_float(x, "X");
    r.require(cos.dtype == x.dtype && sin.dtype == x.dtype,
              "cos_cache and sin_cache are {} and {} beside X of {}", cos.dtype, sin.dtype,
              x.dtype);
    r.require(x.rank() == 3 || x.rank() == 4, "X is {}-D; 3-D and 4-D are computed", x.rank());
    const bool packed = x.rank() == 3;
    const int64_t heads = packed ? node.integer("num_heads", 0) : x.shape[1];
    r.require(heads > 0 && (!packed || x.shape[2] % heads == 0),
              "X {} has no {} heads (num_heads is needed with a 3-D input)", shape_text(x.shape),
              heads);
    const int64_t batch = x.shape[0], tokens = packed ? x.shape[1] : x.shape[2];
    const int64_t head_dim = packed ? x.shape[2] / heads : x.shape[3];
    int64_t rotary = node.integer("rotary_embedding_dim", 0);
    if (rotary == 0) rotary = head_dim;
    r.require(rotary > 0 && rotary % 2 == 0 && rotary <= head_dim,
              "it turns {} of the {} features of a head", rotary, head_dim);

    const TensorType* ids = r.optional_operand(3, "position_ids");
    std::vector<int64_t> rows{batch, tokens, rotary / 2};
    if (ids) {
        r.require(ids->dtype == DType::kInt64 && ids->shape == std::vector{batch, tokens},
                  "its position_ids {} are not one int64 for each of {} x {} tokens",
                  shape_text(ids->shape), batch, tokens);
        rows = {cos.shape.empty() ? 0 : cos.shape[0], rotary / 2};
    }
    r.require(cos.shape == rows && sin.shape == rows, "cos_cache {} and sin_cache {} are not {}",
              shape_text(cos.shape), shape_text(sin.shape), shape_text(rows));
    if (ids) r.numbers("position_ids_range", {0, rows[0] - 1});
    r.number("packed", packed);
    r.number("batch", batch);
    r.number("tokens", tokens);
    r.number("heads", heads);
    r.number("head_dim", head_dim);
    r.number("rotary", rotary);
    r.number("interleaved", node.integer("interleaved", 0) != 0);
    r.number("positions", ids ? rows[0] : batch * tokens);
    r.flops(6.0 * static_cast<double>(x.count()));
    r.result(0, "Y", x);
}

}  // namespace cleave::importer::from_onnx
