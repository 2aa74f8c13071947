// SPDX-License-Identifier: Apache-2.0
// What the rows of the kernel table are drawn with, and those of operators that stand alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/simt/kernel_case.h"

namespace cleave::test {

// Of the caches.
inline constexpr int64_t kCacheSlots = 3, kCacheContext = 150;

// Bounds by what is narrowed: a product of normalised operands loses about the type's last bit.
inline double narrowed_bound(DType dtype) {
    return dtype == DType::kF16 || is_scaled(dtype) ? 1e-3 : dtype == DType::kBF16 ? 8e-3 : 2e-5;
}

// A matrix [rows, columns] among the operands, and its values.
struct Matrix {
    int operand = -1;
    codegen::WeightFormat format;
    std::vector<double> values;
    // Its rows [first, first + rows) times x, plus their bias.
    Row times(const Row& x, int64_t first, int64_t rows, const GuardedBuffer* bias) const;
};

struct Draw {
    KernelCase& c;
    std::mt19937 rng;
    // The next argument.
    Matrix matrix(const char* name, const MatrixForm& form, int64_t rows, int64_t columns,
                  double size);
    GuardedBuffer operator()(const char* name, DType dtype, int64_t n, double scale = 1.0) {
        return GuardedBuffer::random(name, dtype, n, rng, scale);
    }
    int result(const char* name, int64_t n) {
        return c.add_arg(GuardedBuffer(name, c.activations, n));
    }
};

inline void bounds(KernelCase& c, DType narrow) {
    c.tolerance = std::max(c.tolerance, narrowed_bound(c.activations));
    c.matrix_tolerance = std::max(narrowed_bound(narrow), c.tolerance);
}

// The cache as hosts arrange it, or GPUs; its slots' blocks are in random order.
inline SlabPlace cache_place(bool host) {
    return shuffled_place(kCacheSlots, kCacheContext, !host);
}
// Two slots have their first positions in one block, as sequences with a common prompt have.
inline void share_first_block(SlabPlace& place, int64_t slot, int64_t other) {
    place.blocks[static_cast<size_t>(other * place.blocks_per_slot)] =
        place.blocks[static_cast<size_t>(slot * place.blocks_per_slot)];
}
// The next arguments: a slab, and its block table. Returns the slab's operand.
inline int add_cache(Draw& draw, const codegen::SlabSpec& slab, const SlabPlace& place) {
    int kv = draw.c.add_arg(random_slab(slab, place, draw.rng));
    draw.c.add_arg(place.num_blocks);
    draw.c.add_arg(GuardedBuffer::integers("blocks", place.blocks));
    draw.c.add_arg(place.blocks_per_slot);
    return kv;
}

// The result of a launch that writes those rows into the slab as it is now.
KernelCase::Result appended(const KernelCase& c, int kv, const codegen::SlabSpec& slab,
                            const SlabPlace& place, const std::vector<WrittenRow>& written);

void bounds(KernelCase& c, const MatrixForm& form);

// The x of a product: activations, or what a launch prepared of them as the weights are staged.
// Rows of f16 have a factor each behind the last one then, unless the product's activations are f16
// anyway.
struct Activations {
    int operand = -1;
    codegen::View view;
    bool prepared = false, factors = false;

    double factor(int64_t t) const { return factors ? std::exp2(2 * (t % 3)) : 1.0; }
    Row row(const KernelCase& c, int64_t t, int64_t in) const;
};
Activations draw_activations(Draw& draw, const MatrixForm& form, bool prepared,
                             const codegen::View& view, int64_t rows, double size);

// Of a norm's weights, so that rows are within f16 but for those that put_beyond changes.
inline double norm_size(bool beyond) { return beyond ? 3e4 : 1.0; }
// Makes every fourth row from the second on larger than f16 is, up to 1e9; with a norm, by one
// feature.
void put_beyond(KernelCase& c, int x, const codegen::View& view, int64_t rows, int64_t in,
                int norm = -1);

struct QkvOptions {
    int64_t in = 64, head_dim = 16, v_head_dim = 16, q_heads = 4, kv_heads = 2, rotary = 16;
    bool interleaved = false, head_norms = false, biases = false, norm = true;
    bool prepared = false;  // without a norm, x as the weights are staged
    bool beyond = false;    // rows of x beyond f16
};
KernelCase gate_up_case(const MatrixForm& form, int64_t in, int64_t out, int64_t tokens,
                        importer::Activation activation, bool extras,
                        DType activations = DType::kF32, bool prepared = false,
                        bool beyond = false);
KernelCase qkv_case(bool host, const MatrixForm& form, DType kv_dtype, const RaggedBatch& batch,
                    QkvOptions options, DType activations = DType::kF32);

enum class Plain { kGated, kAdd, kScale, kSelect };

KernelCase embedding_case(const MatrixForm& form, int64_t hidden, DType activations);
KernelCase rms_norm_case(DType dtype, int64_t out, int64_t group);
KernelCase rope_case(int64_t rotary, bool interleaved);
KernelCase kv_append_case(bool host, DType dtype);
KernelCase plain_case(Plain which, int64_t n, DType activations);
KernelCase all_reduce_case(int64_t sources, int64_t out, bool residual, bool norm,
                           DType activations);
KernelCase argmax_case(int64_t vocabulary);
// The case's kernel with elementwise operators behind it, on rows of `n` features.
KernelCase with_epilogue(KernelCase c, int64_t n, const codegen::Epilogue& epilogue);
KernelCase copy_case(DType from, DType to);
KernelCase prepare_case(DType activations, DType to, int64_t in, bool norm, bool select,
                        bool beyond = false);
// Prepared activations of weights of that form.
inline DType staged_as(const MatrixForm& form) {
    return form.quantized ? DType::kF16 : codegen::WeightFormat(form.dtype).staged();
}

// Rows of the warpgroups' table that are products.
void add_warpgroup_products(Cases& cases);

}  // namespace cleave::test
