// SPDX-License-Identifier: Apache-2.0
#include "runtime/simt/matrix.h"

#include <cstdint>

#include "codegen/templates/gpu/fragments.cuh"
#include "runtime/base/convert.h"
#include "runtime/base/errors.h"
#include "runtime/simt/block.h"

namespace cleave::runtime::simt {

namespace {

// Places of a layout's elements, computed once: [lane][element] -> row-major index.
template <class Layout>
struct Places {
    uint16_t a[Layout::kLanes][Layout::kA], b[Layout::kLanes][Layout::kB], c[Layout::kLanes][Layout::kC];

    constexpr Places() : a(), b(), c() {
        for (int l = 0; l < Layout::kLanes; ++l) {
            for (int i = 0; i < Layout::kA; ++i)
                a[l][i] = static_cast<uint16_t>(Layout::a_row(l, i) * Layout::kDepth + Layout::a_depth(l, i));
            for (int i = 0; i < Layout::kB; ++i)
                b[l][i] = static_cast<uint16_t>(Layout::b_depth(l, i) * Layout::kCols + Layout::b_col(l, i));
            for (int i = 0; i < Layout::kC; ++i)
                c[l][i] = static_cast<uint16_t>(Layout::c_row(l, i) * Layout::kCols + Layout::c_col(l, i));
        }
    }
};

float element(const uint32_t* pairs, int i, int kind) {
    auto bits = static_cast<uint16_t>(pairs[i / 2] >> (16 * (i % 2)));
    return kind == 0 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

template <class Layout>
void apply(Warp& warp, int kind) {
    static constexpr Places<Layout> places;
    alignas(64) float a[Layout::kRows * Layout::kDepth], b[Layout::kDepth * Layout::kCols];
    for (int l = 0; l < Layout::kLanes; ++l) {
        const Warp::Operands& operands = warp.operands[l];
        for (int i = 0; i < Layout::kA; ++i) a[places.a[l][i]] = element(operands.a, i, kind);
        for (int i = 0; i < Layout::kB; ++i) b[places.b[l][i]] = element(operands.b, i, kind);
    }
    alignas(64) float c[Layout::kRows * Layout::kCols];
    for (int r = 0; r < Layout::kRows; ++r) {
        float row[Layout::kCols] = {};
        for (int k = 0; k < Layout::kDepth; ++k)
            for (int n = 0; n < Layout::kCols; ++n) row[n] += a[r * Layout::kDepth + k] * b[k * Layout::kCols + n];
        for (int n = 0; n < Layout::kCols; ++n) c[r * Layout::kCols + n] = row[n];
    }
    for (int l = 0; l < Layout::kLanes; ++l)
        for (int i = 0; i < Layout::kC; ++i) warp.operands[l].c[i] += c[places.c[l][i]];
}

}  // namespace

void multiply_add(codegen::MatrixInstruction instruction, int kind, Warp& warp) {
    using enum codegen::MatrixInstruction;
    switch (instruction) {
        case kMmaSync: return apply<MmaSync16n8k16>(warp, kind);
        case kMfma: return apply<Mfma16x16x16>(warp, kind);
        case kWmmaGfx11: return apply<WmmaGfx11>(warp, kind);
        case kWmmaGfx12: return apply<WmmaGfx12>(warp, kind);
        case kNone: break;
    }
}

}  // namespace cleave::runtime::simt
