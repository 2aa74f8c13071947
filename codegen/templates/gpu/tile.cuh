// SPDX-License-Identifier: Apache-2.0
// One product C += A B of 16 x 16 tiles by a warp, behind one interface: the device's matrix
// instruction where it has one for the type (HardTile, depth 16), multiply-adds otherwise
// (SoftTile, depth 4). For f32 gfx9's is exact f32, and NVIDIA's rounds operands to TF32's 10 bits,
// which is no f32 and not used. A [16, kDepth] and B [kDepth, 16] come from shared memory, B with
// its columns as rows. Lanes that share a row of C are kRowLanes neighbours; element i of a lane
// is in its row_slot(i)-th row.
#pragma once

#include "vectors.cuh"

namespace cleave {

// Rows lane / 4 + (WARP / 4) r, columns lane % 4 + 4 j: with rows 4 banks apart (mod 32), no loads
// collide.
template <class T>
struct SoftTile {
    static constexpr int kDepth = 4, kRowSlots = 64 / WARP, kC = 4 * kRowSlots, kRowLanes = 4;
    struct A {
        Floats<4> row[kRowSlots];
    };
    struct B {
        Floats<4> col[4];
    };
    struct C {
        float v[kC];
    };
    static DEVICE constexpr int row_slot(int i) { return i / 4; }
    static DEVICE constexpr int c_row(int l, int i) { return l / 4 + WARP / 4 * (i / 4); }
    static DEVICE constexpr int c_col(int l, int i) { return l % 4 + 4 * (i % 4); }

    static DEVICE C zero() {
        C c;
#pragma unroll
        for (int i = 0; i < kC; ++i) c.v[i] = 0.0f;
        return c;
    }
    static DEVICE A load_a(const T* p, int stride) {
        A a;
#pragma unroll
        for (int r = 0; r < kRowSlots; ++r)
            a.row[r] = load_floats<4>(p + (lane() / 4 + WARP / 4 * r) * stride);
        return a;
    }
    static DEVICE B load_b(const T* p, int stride) {
        B b;
#pragma unroll
        for (int j = 0; j < 4; ++j) b.col[j] = load_floats<4>(p + (lane() % 4 + 4 * j) * stride);
        return b;
    }
    static DEVICE void multiply(C& c, const A& a, const B& b) {
#pragma unroll
        for (int i = 0; i < kC; ++i)
#pragma unroll
            for (int k = 0; k < 4; ++k) c.v[i] = fma(a.row[i / 4][k], b.col[i % 4][k], c.v[i]);
    }
};

#if defined(CLEAVE_MATRIX)
template <class T>
struct HardTile {
    static constexpr int kDepth = 16, kC = Tile::kC;
#if defined(CLEAVE_MMA_SYNC)
    static constexpr int kRowSlots = 2, kRowLanes = 4;
    static DEVICE constexpr int row_slot(int i) { return i / 2 % 2; }
#else
    static constexpr int kRowSlots = kC, kRowLanes = 16;
    static DEVICE constexpr int row_slot(int i) { return i; }
#endif
    using A = FragmentA<T>;
    using B = FragmentB<T>;
    using C = FragmentC;
    static DEVICE constexpr int c_row(int l, int i) { return Tile::c_row(l, i); }
    static DEVICE constexpr int c_col(int l, int i) { return Tile::c_col(l, i); }
    static DEVICE C zero() { return zero_c(); }
    static DEVICE A load_a(const T* p, int stride) { return ::cleave::load_a(p, stride); }
    static DEVICE B load_b(const T* p, int stride) { return ::cleave::load_b(p, stride); }
    static DEVICE void multiply(C& c, const A& a, const B& b) { multiply_add(c, a, b); }
};
#endif
#if defined(CLEAVE_MFMA)
// Rows are aligned to 16 bytes, a lane's four elements.
template <class F>
DEVICE F load_four(const float* p) {
    Vector<u32, 4> v = load_vector<4>(reinterpret_cast<const u32*>(p));
    F f;
#pragma unroll
    for (int i = 0; i < 4; ++i) f.word[i] = v.v[i];
    return f;
}
template <>
DEVICE FragmentA<float> HardTile<float>::load_a(const float* p, int stride) {
    return load_four<A>(p + Tile::a_row(lane(), 0) * stride + Tile::a_depth(lane(), 0));
}
template <>
DEVICE FragmentB<float> HardTile<float>::load_b(const float* p, int stride) {
    return load_four<B>(p + Tile::b_col(lane(), 0) * stride + Tile::b_depth(lane(), 0));
}
#endif

template <class T>
struct TileOf {
#if defined(CLEAVE_MATRIX)
    using type = HardTile<T>;
#else
    using type = SoftTile<T>;
#endif
};
#if !defined(CLEAVE_MFMA)
template <>
struct TileOf<float> {
    using type = SoftTile<float>;
};
#endif
// Of products whose operands are in shared memory as T.
template <class T>
using MatrixTile = typename TileOf<T>::type;

// Elements that a shared row is longer than its data, so that neighbouring rows start 4 banks (of
// 32) apart when the data is a multiple of 32 banks, and rows of 16 bytes stay aligned.
template <class T>
DEVICE constexpr int row_padding() {
    return 16 / int(sizeof(T));
}

}  // namespace cleave
