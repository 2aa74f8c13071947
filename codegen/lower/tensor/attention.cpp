// SPDX-License-Identifier: Apache-2.0
#include "codegen/lower/tensor/tensor_kernels.h"
#include "runtime/base/errors.h"

namespace cleave::codegen {

namespace {

constexpr int64_t kItemQueries = 16;

// Distances in elements between batches, heads and rows: heads packed into the last dimension, or
// before the rows.
void strides(TensorLowering& l, const std::string& of, bool packed, int64_t heads, int64_t rows,
             int64_t features) {
    l.argument(of + "_batch", heads * rows * features);
    l.argument(of + "_head", packed ? features : rows * features);
    l.argument(of + "_row", packed ? heads * features : features);
}

}  // namespace

TensorKernel lower_tensor_attention(const StepReader& step) {
    TensorLowering l(step, "host/tensor_attention.h", "tensor_attention", "TensorAttentionArgs");
    const int64_t dim = l.number("head_dim"), v_dim = l.number("v_head_dim");
    if (dim % 2 != 0 || v_dim % 2 != 0)
        throw UserError(
            "{} (Attention) has heads of {} features (values: {}): host kernels need even sizes; "
            "pad the heads with a zero feature",
            l.op().name, dim, v_dim);
    const DType type = l.find("Q")->dtype, value_type = l.find("V")->dtype;
    const importer::TensorOperand* mask = l.find("attn_mask");
    const bool packed = l.number("packed") != 0,
               presents = l.find_result("present_key") || l.find_result("present_value");
    const int64_t batch = l.number("batch"), heads = l.number("heads"),
                  kv_heads = l.number("kv_heads"), queries = l.number("queries"),
                  keys = l.number("keys");
    const int64_t runs = (queries + kItemQueries - 1) / kItemQueries;
    l.items(batch * heads * runs + (presents ? batch * kv_heads : 0));
    l.note(fmt::format("shapes: heads of {} ({} for values); all other sizes are arguments", dim,
                       v_dim));
    l.note(fmt::format("dtype: q, k {}, v {}, sums f32", type, value_type));
    l.constant("kHeadDim", dim);
    l.constant("kVHeadDim", v_dim);
    l.type("Q", type);
    l.type("K", l.find("K")->dtype);
    l.type("V", value_type);
    l.type("Out", type);
    l.flag("kMasked", mask != nullptr);
    l.flag("kBooleanMask", mask && mask->dtype == DType::kBool);
    l.type("Mask", mask ? mask->dtype : type);
    l.flag("kCausal", l.number("causal") != 0);
    l.flag("kByLength", l.find("nonpad_kv_seqlen") != nullptr);
    l.constant("kLeftWindow", l.number("left_window_size"));
    l.constant("kRightWindow", l.number("right_window_size"));
    l.constant_real("kScale", l.real("scale"));
    l.constant_real("kSoftcap", l.real("softcap"));
    l.constant("kKeep", l.number("qk_mode"));
    l.constant("kItemQueries", kItemQueries);

    l.operand("Q");
    l.operand("K");
    l.operand("V");
    l.operand("attn_mask", type);
    l.operand("past_key", type);
    l.operand("past_value", value_type);
    l.operand("nonpad_kv_seqlen", DType::kInt64);
    l.result("Y");
    l.result("present_key", type);
    l.result("present_value", value_type);
    l.result("qk_matmul_output", type);
    l.argument("batch");
    l.argument("heads");
    l.argument("kv_heads");
    l.argument("queries");
    l.argument("keys");
    l.argument("past");
    strides(l, "q", packed, heads, queries, dim);
    strides(l, "k", packed, kv_heads, keys, dim);
    strides(l, "v", packed, kv_heads, keys, v_dim);
    strides(l, "y", packed, heads, queries, v_dim);
    const std::vector<int64_t> none(3, 0);
    const std::vector<int64_t>& s = mask ? l.numbers("mask_strides") : none;
    l.argument("mask_batch", s[0]);
    l.argument("mask_head", s[1]);
    l.argument("mask_row", s[2]);
    l.argument("mask_keys", mask ? l.number("mask_keys") : 0);
    return l.finish();
}

}  // namespace cleave::codegen
