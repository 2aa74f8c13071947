// SPDX-License-Identifier: Apache-2.0
#include "runtime/simt/matrix.h"

#include <bit>
#include <cstring>

#include "codegen/templates/gpu/fragments.cuh"
#include "runtime/simt/block.h"

namespace cleave::runtime::simt {

namespace {

// Places of a layout's elements, computed once: [lane][element] -> row-major index.
template <class Layout>
struct Places {
    uint16_t a[Layout::kLanes][Layout::kA], b[Layout::kLanes][Layout::kB],
        c[Layout::kLanes][Layout::kC];

    constexpr Places() : a(), b(), c() {
        for (int l = 0; l < Layout::kLanes; ++l) {
            for (int i = 0; i < Layout::kA; ++i)
                a[l][i] = static_cast<uint16_t>(Layout::a_row(l, i) * Layout::kDepth +
                                                Layout::a_depth(l, i));
            for (int i = 0; i < Layout::kB; ++i)
                b[l][i] = static_cast<uint16_t>(Layout::b_depth(l, i) * Layout::kCols +
                                                Layout::b_col(l, i));
            for (int i = 0; i < Layout::kC; ++i)
                c[l][i] = static_cast<uint16_t>(Layout::c_row(l, i) * Layout::kCols +
                                                Layout::c_col(l, i));
        }
    }
};

// Exact, subnormals included: the exponent is re-based by a product with 2^112. Branch-free, unlike
// the conversion of runtime/base, which sets no stage for thousands of elements an instruction.
float from_f16(uint32_t bits) {
    float magnitude = std::bit_cast<float>((bits & 0x7fff) << 13) * 0x1p112f;
    uint32_t special = (bits & 0x7c00) == 0x7c00 ? 0x7f800000 : 0;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | special |
                                (bits & 0x8000) << 16);
}

// Of f16 and bf16: what is left of the smallest numbers where they are read as zero.
constexpr uint32_t normal_or_zero(int kind, uint32_t bits) {
    return (bits & (kind == 0 ? 0x7c00u : 0x7f80u)) == 0 ? bits & 0x8000u : bits;
}

// Kinds are those of MatrixKind (prelude_simt.cuh): f16, bf16, float.
template <int kind, bool kFlushes = false>
float element(const uint32_t* words, int i) {
    if constexpr (kind == 2) return std::bit_cast<float>(words[i]);
    uint32_t bits = words[i / 2] >> (16 * (i % 2)) & 0xffff;
    if constexpr (kFlushes) bits = normal_or_zero(kind, bits);
    return kind == 0 ? from_f16(bits) : std::bit_cast<float>(bits << 16);
}

typedef float Floats __attribute__((vector_size(32)));

// One instruction, whose operands begin at those elements of what the lanes hold.
template <class Layout, int kind, bool kFlushes = false>
void apply_kind(Warp& warp, int first = 0) {
    static constexpr Places<Layout> places;
    alignas(64) float a[Layout::kRows * Layout::kDepth], b[Layout::kDepth * Layout::kCols];
    for (int l = 0; l < Layout::kLanes; ++l) {
        const Warp::Operands& operands = warp.operands[l];
        for (int i = 0; i < Layout::kA; ++i)
            a[places.a[l][i]] = element<kind, kFlushes>(operands.a, first + i);
        for (int i = 0; i < Layout::kB; ++i)
            b[places.b[l][i]] = element<kind, kFlushes>(operands.b, first + i);
    }
    constexpr int kVectors = Layout::kCols / 8;
    alignas(64) float c[Layout::kRows * Layout::kCols];
    for (int r = 0; r < Layout::kRows; ++r) {
        Floats row[kVectors] = {};
        for (int k = 0; k < Layout::kDepth; ++k) {
            const auto* line = reinterpret_cast<const Floats*>(b + k * Layout::kCols);
            for (int n = 0; n < kVectors; ++n) row[n] += a[r * Layout::kDepth + k] * line[n];
        }
        std::memcpy(c + r * Layout::kCols, row, sizeof row);
    }
    for (int l = 0; l < Layout::kLanes; ++l)
        for (int i = 0; i < Layout::kC; ++i) warp.operands[l].c[i] += c[places.c[l][i]];
}

template <class Layout>
void apply(Warp& warp, int kind) {
    kind == 0 ? apply_kind<Layout, 0>(warp) : apply_kind<Layout, 1>(warp);
}

// Operands are those of Mfma16x16x16 for every type.
template <class OfBf16, bool kFlushes = false>
void apply_mfma(Warp& warp, int kind) {
    constexpr int kHeld = Mfma16x16x16::kA;
    if (kind == 0) apply_kind<Mfma16x16x16, 0, kFlushes>(warp);
    for (int i = 0; kind == 1 && i < kHeld; i += OfBf16::kA)
        apply_kind<OfBf16, 1, kFlushes>(warp, i);
    for (int i = 0; kind == 2 && i < kHeld; i += Mfma16x16x4::kA)
        apply_kind<Mfma16x16x4, 2>(warp, i);
}

template <int kind>
float element_at(const char* p) {
    uint16_t bits;
    std::memcpy(&bits, p, sizeof bits);
    return kind == 0 ? from_f16(bits) : std::bit_cast<float>(uint32_t{bits} << 16);
}

// Rows of one operand, 16 deep, as floats.
template <int kind>
void read_operand(const char* shared, uint64_t descriptor, int rows, float* out) {
    for (int r = 0; r < rows; ++r)
        for (int k = 0; k < 16; ++k)
            out[r * 16 + k] = element_at<kind>(shared + WgmmaOperand::address(descriptor, r, k));
}

// sum [64, n] += left [64, 16] right [16, n].
void add_product(int n, const float* left, const float* right, float* sum) {
    for (int r = 0; r < 64; ++r)
        for (int j = 0; j < n; j += 8) {
            Floats total = {};
            for (int k = 0; k < 16; ++k)
                total += left[r * 16 + k] * *reinterpret_cast<const Floats*>(right + k * n + j);
            for (int i = 0; i < 8; ++i) sum[r * n + j + i] += total[i];
        }
}

template <int kind>
void apply_warpgroup(int n, const char* shared, uint64_t a, uint64_t b, float* sum) {
    alignas(64) float left[64 * 16], rows[128 * 16], right[16 * 128];
    read_operand<kind>(shared, a, 64, left);
    read_operand<kind>(shared, b, n, rows);
    for (int j = 0; j < n; ++j)
        for (int k = 0; k < 16; ++k) right[k * n + j] = rows[j * 16 + k];
    add_product(n, left, right, sum);
}

template <int kind>
void apply_warpgroup(int n, const char* shared, const WarpgroupFragments& a, uint64_t b,
                     float* sum) {
    using Places = Wgmma64<16>;
    alignas(64) float left[64 * 16], right[16 * 128];
    for (int t = 0; t < Places::kLanes; ++t)
        for (int i = 0; i < Places::kA; ++i)
            left[Places::a_row(t, i) * 16 + Places::a_depth(t, i)] =
                element<kind>(a[static_cast<size_t>(t)].data(), i);
    for (int k = 0; k < 16; ++k)
        for (int j = 0; j < n; ++j)
            right[k * n + j] = element_at<kind>(shared + WgmmaOperand::transposed_address(b, j, k));
    add_product(n, left, right, sum);
}

}  // namespace

void multiply_add_warpgroup(int kind, int n, const char* shared, uint64_t a, uint64_t b,
                            float* sum) {
    kind == 0 ? apply_warpgroup<0>(n, shared, a, b, sum) : apply_warpgroup<1>(n, shared, a, b, sum);
}

void multiply_add_warpgroup(int kind, int n, const char* shared, const WarpgroupFragments& a,
                            uint64_t b, float* sum) {
    kind == 0 ? apply_warpgroup<0>(n, shared, a, b, sum) : apply_warpgroup<1>(n, shared, a, b, sum);
}

void multiply_add(codegen::MatrixInstruction instruction, int kind, Warp& warp) {
    using enum codegen::MatrixInstruction;
    switch (instruction) {
        case kMmaSync: return apply<MmaSync16n8k16>(warp, kind);
        case kMfma: return apply_mfma<Mfma16x16x16>(warp, kind);
        case kMfmaGfx908: return apply_mfma<Mfma16x16x8>(warp, kind);
        case kMfmaGfx90a: return apply_mfma<Mfma16x16x16, true>(warp, kind);
        case kWmmaGfx11: return apply<WmmaGfx11>(warp, kind);
        case kWmmaGfx12: return apply<WmmaGfx12>(warp, kind);
        case kNone: break;
    }
}

}  // namespace cleave::runtime::simt
