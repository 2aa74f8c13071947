// SPDX-License-Identifier: Apache-2.0
// Attention of the ONNX standard (opset 23 and later): heads in a dimension of their own or packed
// into the last, past keys and values, masks that are added or chosen by, and what else the
// standard has.
#include <cmath>
#include <utility>

#include "importer/onnx/tensor/tensor_reader.h"

namespace cleave::importer::from_onnx {
namespace {

struct Sizes {
    int64_t batch = 0, heads = 0, rows = 0, features = 0;  // of one of Q, K and V
};

// 4-D: [batch, heads, rows, features]; 3-D: [batch, rows, heads * features].
Sizes sizes_of(const TensorType& t, int64_t heads, std::string_view name) {
    const auto& s = t.shape;
    if (s.size() == 4) return {s[0], s[1], s[2], s[3]};
    TensorReader::require(heads > 0 && s[2] % heads == 0,
                          "its input {} has {} features for {} heads (q_num_heads and "
                          "kv_num_heads are needed with 3-D inputs)",
                          name, s[2], heads);
    return {s[0], heads, s[1], s[2] / heads};
}

// Distances in elements between entries of the mask along batch, heads, queries; keys are side by
// side.
std::vector<int64_t> mask_strides(const TensorType& mask, std::vector<int64_t> whole) {
    TensorReader::require(mask.rank() >= 1 && mask.rank() <= 4, "its attn_mask is {}-D",
                          mask.rank());
    TensorReader::require(mask.shape.back() <= whole[3],
                          "its attn_mask {} has more keys than the {} that there are",
                          shape_text(mask.shape), whole[3]);
    std::vector<int64_t> strides(3, 0);
    int64_t stride = mask.shape.back();
    for (int64_t i = 2; i >= 4 - mask.rank(); --i) {
        const int64_t size = mask.shape[i - (4 - mask.rank())];
        TensorReader::require(size == 1 || size == whole[i],
                              "its attn_mask {} does not fit into {}", shape_text(mask.shape),
                              shape_text(whole));
        strides[i] = size == 1 ? 0 : stride;
        stride *= size;
    }
    return strides;
}

void read_mask(TensorReader& r, const TensorType& q, std::vector<int64_t> whole) {
    const TensorType* mask = r.optional_operand(3, "attn_mask");
    if (!mask) return;
    if (mask->dtype != DType::kBool) r.require_float(*mask, "attn_mask");
    r.require(mask->dtype == DType::kBool || mask->dtype == q.dtype,
              "its attn_mask is {} beside queries of {}", mask->dtype, q.dtype);
    r.numbers("mask_strides", mask_strides(*mask, std::move(whole)));
    r.number("mask_keys", mask->shape.back());
}

// Past keys and values: how many, or 0.
int64_t read_past(TensorReader& r, const TensorType& k, const Sizes& key, const TensorType& v,
                  const Sizes& value) {
    const TensorType* past_key = r.optional_operand(4, "past_key");
    const TensorType* past_value = r.optional_operand(5, "past_value");
    r.require(!past_key == !past_value, "past_key and past_value must be given together");
    if (!past_key) return 0;
    r.require(past_key->rank() == 4 && past_value->rank() == 4,
              "past_key or past_value is not 4-D");
    const int64_t past = past_key->shape[2];
    const std::vector<int64_t> keys{key.batch, key.heads, past, key.features};
    const std::vector<int64_t> values{key.batch, key.heads, past, value.features};
    r.require(past_key->shape == keys && past_value->shape == values,
              "past_key {} and past_value {} do not go with K and V", shape_text(past_key->shape),
              shape_text(past_value->shape));
    r.require(past_key->dtype == k.dtype && past_value->dtype == v.dtype,
              "past_key and past_value are of other types than K and V");
    return past;
}

}  // namespace

void read_attention(TensorReader& r) {
    const Node& node = r.node();
    const TensorType &q = r.operand(0, "Q"), &k = r.operand(1, "K"), &v = r.operand(2, "V");
    for (const TensorType* t : {&q, &k, &v}) r.require_float(*t, "Q, K or V");
    r.require(q.rank() == k.rank() && q.rank() == v.rank() && (q.rank() == 3 || q.rank() == 4),
              "Q, K and V are {}-D, {}-D and {}-D; all 3-D or all 4-D are computed", q.rank(),
              k.rank(), v.rank());
    r.require(q.dtype == k.dtype, "Q is {} and K is {}", q.dtype, k.dtype);
    const Sizes query = sizes_of(q, node.integer("q_num_heads", 0), "Q");
    const Sizes key = sizes_of(k, node.integer("kv_num_heads", 0), "K");
    const Sizes value = sizes_of(v, node.integer("kv_num_heads", 0), "V");
    r.require(key.batch == query.batch && value.batch == query.batch && key.heads == value.heads &&
                  key.rows == value.rows && key.features == query.features,
              "Q {}, K {} and V {} do not go together", shape_text(q.shape), shape_text(k.shape),
              shape_text(v.shape));
    r.require(query.heads % key.heads == 0, "{} query heads are no multiple of {} KV heads",
              query.heads, key.heads);
    const int64_t past = read_past(r, k, key, v, value), total = past + key.rows;
    read_mask(r, q, {query.batch, query.heads, query.rows, total});
    if (const TensorType* lengths = r.optional_operand(6, "nonpad_kv_seqlen")) {
        r.require(lengths->dtype == DType::kInt64 && lengths->shape == std::vector{query.batch},
                  "its nonpad_kv_seqlen is not one int64 for each of the batch");
        r.require(past == 0, "nonpad_kv_seqlen and past_key exclude each other");
    }
    const int64_t precision = node.integer("softmax_precision", 1);
    r.require(precision == 1 || precision == 10 || precision == 16,
              "its softmax_precision is {}; the softmax is taken in f32", precision);
    const int64_t mode = node.integer("qk_matmul_output_mode", 0);
    r.require(mode >= 0 && mode <= 3, "its qk_matmul_output_mode is {}", mode);
    for (const char* window : {"left_window_size", "right_window_size"}) {
        r.require(node.integer(window, -1) >= -1 && node.integer(window, -1) <= kMostTensorElements,
                  "its {} is {}", window, node.integer(window, -1));
        r.number(window, node.integer(window, -1));
    }
    r.number("packed", q.rank() == 3);
    r.number("batch", query.batch);
    r.number("heads", query.heads);
    r.number("kv_heads", key.heads);
    r.number("queries", query.rows);
    r.number("keys", key.rows);
    r.number("past", past);
    r.number("head_dim", query.features);
    r.number("v_head_dim", value.features);
    r.number("causal", node.integer("is_causal", 0) != 0);
    r.number("qk_mode", r.wants(3) ? mode : -1);
    r.real("softcap", node.real("softcap", 0.0));
    r.real("scale", node.attribute("scale") ? node.real("scale", 0.0)
                                            : 1.0 / std::sqrt(double(query.features)));
    r.flops(static_cast<double>(q.count()) / static_cast<double>(query.features) *
            static_cast<double>(total) *
            static_cast<double>(2 * (query.features + value.features) + 8));

    TensorType y{q.dtype, {query.batch, query.heads, query.rows, value.features}};
    if (q.rank() == 3) y.shape = {query.batch, query.rows, query.heads * value.features};
    r.result(0, "Y", y);
    r.result(1, "present_key", {k.dtype, {key.batch, key.heads, total, key.features}});
    r.result(2, "present_value", {v.dtype, {key.batch, key.heads, total, value.features}});
    r.result(3, "qk_matmul_output", {q.dtype, {query.batch, query.heads, query.rows, total}});
}

}  // namespace cleave::importer::from_onnx
