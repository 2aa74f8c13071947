// SPDX-License-Identifier: Apache-2.0
// Shapes of the operators that only activations meet; their data is never known.
#include "importer/onnx/probe/evaluate.h"

namespace cleave::importer::from_onnx {
namespace {

void same_shape(Evaluation& e) {
    if (const Dims* s = e.shape(0)) e.set_shape(0, *s);
}

// Output 0 as the input; output 3, the sum, likewise (com.microsoft Skip...Normalization).
void skip_norm(Evaluation& e) {
    if (const Dims* s = e.shape(0)) {
        e.set_shape(0, *s);
        e.set_shape(3, *s);
    }
}

void last_dimension(Evaluation& e, int64_t n) {
    if (const Dims* s = e.shape(0); s && !s->empty() && n > 0) {
        Dims dims = *s;
        dims.back() = n;
        e.set_shape(0, dims);
    }
}

// Rows of a matrix that may pack two codes in a byte: ids' dimensions, and the features of a row.
void gather_block_quantized(Evaluation& e) {
    const Dims *table = e.shape(0), *ids = e.shape(1), *scales = e.shape(2);
    if (!table || !ids || !scales || table->size() != 2) return;
    const Constant* stored = e.constant(0);
    const bool bytes = !stored || elem_type_bits(stored->elem_type) == 8;
    const int64_t bits = bytes ? e.node.integer("bits", 4) : 8;
    if (bits <= 0) return;
    Dims dims = *ids;
    dims.push_back((*table)[1] * 8 / bits);
    e.set_shape(0, dims);
}

void gemm(Evaluation& e) {
    const Dims *a = e.shape(0), *b = e.shape(1);
    if (!a || !b || a->size() != 2 || b->size() != 2) return;
    e.set_shape(
        0, {(*a)[e.node.integer("transA", 0) ? 1 : 0], (*b)[e.node.integer("transB", 0) ? 0 : 1]});
}

void present(Evaluation& e, size_t output, size_t past, int64_t axis, const Dims* fresh,
             int64_t fresh_axis) {
    const Dims* p = e.shape(past);
    if (!p || !fresh || p->size() <= static_cast<size_t>(axis) ||
        fresh->size() <= static_cast<size_t>(fresh_axis))
        return;
    Dims dims = *p;
    dims[axis] += (*fresh)[fresh_axis];
    e.set_shape(output, dims);
}

// Of heads, as a file says: their products with dimensions stay far from overflow.
bool is_count(int64_t n) { return n > 0 && n <= 4096; }

void group_query_attention(Evaluation& e) {
    const Dims* q = e.shape(0);
    if (!q || q->size() != 3) return;
    Dims dims = *q;
    if (!e.given(1)) {
        const int64_t heads = e.node.integer("num_heads", 1),
                      kv = e.node.integer("kv_num_heads", 1);
        if (!is_count(heads) || !is_count(kv)) return;
        dims[2] = dims[2] / (heads + 2 * kv) * heads;
    }
    e.set_shape(0, dims);
    present(e, 1, 3, 2, q, 1);
    present(e, 2, 4, 2, q, 1);
}

void multi_head_attention(Evaluation& e) {
    if (const Dims* q = e.shape(0); q && q->size() == 3) {
        e.set_shape(0, *q);
        present(e, 1, 6, 2, q, 1);
        present(e, 2, 7, 2, q, 1);
    }
}

// ONNX Attention: [B, heads, S, d] or [B, S, heads * d].
void attention(Evaluation& e) {
    const Dims *q = e.shape(0), *v = e.shape(2);
    if (!q || !v || q->size() != v->size()) return;
    Dims dims = *q;
    if (q->size() == 4) {
        dims[3] = (*v)[3];
    } else if (q->size() == 3) {
        const int64_t heads = e.node.integer("q_num_heads", 0),
                      kv = e.node.integer("kv_num_heads", 0);
        if (!is_count(heads) || !is_count(kv)) return;
        dims[2] = (*v)[2] / kv * heads;
    }
    e.set_shape(0, dims);
    const int64_t axis = q->size() == 4 ? 2 : 1;
    present(e, 1, 4, 2, e.shape(1), axis);
    present(e, 2, 5, 2, v, axis);
}

}  // namespace

std::vector<NamedRule> activation_rules() {
    return {{"Softmax", same_shape},
            {"LayerNormalization", same_shape},
            {"RMSNormalization", same_shape},
            {"SimplifiedLayerNormalization", same_shape},
            {"SkipSimplifiedLayerNormalization", skip_norm},
            {"RotaryEmbedding", same_shape},
            {"Gelu", same_shape},
            {"FastGelu", same_shape},
            {"QuickGelu", same_shape},
            {"Swish", same_shape},
            {"Dropout", same_shape},
            {"Gemm", gemm},
            {"MatMulNBits", [](Evaluation& e) { last_dimension(e, e.node.integer("N", 0)); }},
            {"GatherBlockQuantized", gather_block_quantized},
            {"GroupQueryAttention", group_query_attention},
            {"MultiHeadAttention", multi_head_attention},
            {"Attention", attention},
            {"TensorScatter", same_shape},
            {"DynamicQuantizeLinear",
             [](Evaluation& e) {
                 same_shape(e);
                 e.set_shape(1, {});
                 e.set_shape(2, {});
             }},
            {"MatMulInteger",
             [](Evaluation& e) {
                 const Dims* b = e.shape(1);
                 if (b && b->size() == 2) last_dimension(e, b->back());
             }},
            {"DequantizeLinear", same_shape}};
}

}  // namespace cleave::importer::from_onnx
