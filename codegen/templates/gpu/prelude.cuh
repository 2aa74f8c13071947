// SPDX-License-Identifier: Apache-2.0
// The vocabulary of the GPU kernels. One source, three back ends: prelude_cuda.cuh (NVRTC, nvcc),
// prelude_hip.cuh (hipRTC, Clang for amdgcn without ROCm) and prelude_simt.cuh (the CPU,
// runtime/simt). Freestanding: a kernel includes this and nothing else; no libc, no device library,
// no host type.
//
// Kernels are in namespace cleave:
//     KERNEL(256) scale(const float* x, float* y, i64 n) { ... }    // launch bound; parameters:
//     pointers, i64 KERNEL_ALONE(256) ..: a block may have its unit's registers to itself; NVIDIA's
//     compiler else rather spills a few of them DEVICE float helper(float v) { ... } // every other
//     function, templates too SHARED(float, partial[8]);                                    //
//     static shared memory, in a function DYNAMIC_SHARED(float, tile); // float* tile: the launch's
//     shared bytes
// Rules: all lanes of a warp meet every warp operation, all threads every barrier; no thread leaves
// a kernel before its last barrier; a byte written in shared memory is read by another thread only
// after barrier() or, in one warp, warp_sync(): shuffles and ballots order nothing. Write one
// barrier() or warp_sync() a line.
//
// Places    thread_x/y/z(), block_x/y/z(), threads_x/y/z() (of a block), blocks_x/y/z() (of the
// grid);
//           lane() and warp() of a block with one dimension; WARP, mask_t, kAllLanes
// Types     i8..i64, u8..u64, f16, bf16; to_float(x); from_float<T>(x); Vector<T, N>, load_vector,
// store_vector;
//           write_vector: as store_vector, of global memory alone
// Sync      barrier(); warp_sync(); fence_block(); fence_device()
// Warp      shuffle(v, lane), shuffle_xor(v, mask), shuffle_up/down(v, delta) for 32-bit types and
// 64-bit integers,
//           each also with a leading mask_t of the lanes that take part; ballot(p), warp_any(p),
//           warp_all(p); warp_sum(v), warp_max(v): every lane gets the result; group_sum<W>(v),
//           group_max<W>(v): of each W lanes
// Atomics   atomic_add (u32, i32, u64, float), atomic_max, atomic_min (i32, u32), atomic_exchange,
// atomic_cas (u32):
//           relaxed, device scope; they give the old value. load_volatile, store_volatile
// Pairs     fma_f16_pair(a, b, c): a * b + c of two f16 in a word each, where f16 holds each
//           product; f8e4m3_pair_to_f16(pair) where CLEAVE_F8_CONVERSION is defined
// Numbers   exp2 (of a result below 2^-126 it may be 0), exp, log2, rsqrt, sqrt, reciprocal, tanh,
//           sigmoid, fma, min, max, larger(a, b) (the number where one is none), abs, floor,
//           kInfinity
// Async     async_copy<4, 8 or 16>(shared, global, valid = true): zeros where not valid;
// async_commit();
//           async_wait<N>(): all but the last N commits have arrived, for this thread (barrier()
//           for the others). A plain copy where the device has none
// Matrix    where CLEAVE_MATRIX is defined: Tile (16 x 16 x 16; places of elements), FragmentA<T>,
// FragmentB<T>,
//           FragmentC; load_a, load_b, load_b_transposed, multiply_add(c, a, b). T is f16 or bf16,
//           and float where CLEAVE_MFMA is defined
// Warpgroup where CLEAVE_WGMMA is defined: four warps (128 threads) multiply operands in shared
// memory, asynchronously.
//           WarpgroupSum<N>: 64 x N in registers, N 16, 32, 64 or 128; sum.clear(); wgmma_fence();
//           wgmma<T>(sum, a, b) of depth 16 with descriptors
//           WgmmaOperand::descriptor(shared_address(p)); wgmma_commit(); wgmma_wait<N>(): all but
//           the last N commits are done; sum.hold() and then sum.at(i), at Wgmma64<N>'s places.
//           What writes registers of a product otherwise (not clear()) calls hold() before the
//           fence. The operands were written before async_fence() of the writing thread and a
//           barrier() after it. wgmma<T>(sum, fragment, b), N 64 or 128: A in registers, a
//           WarpgroupFragment<T> filled by set(i, two neighbours) from places 2i and 2i + 1 and
//           left alone until the wait; b a WgmmaOperand::transposed()
// Launches  a kernel that may begin before the launches before it have ended
// (codegen::Launch::overlaps) calls
//           await_previous_launch(): all that was launched before has ended and is seen. Every
//           thread calls it, and before it writes nothing and reads nothing but its
//           parameters and weights: a thread that ended without it would let the launch behind this
//           one begin before the launch in front has ended. Nothing where the device has no such
//           launches (NVIDIA before sm_90, AMD)
// Cache     kv_block_id(id, num_blocks): the id, which is in [0, num_blocks); kv_wrote(p, n): n
//           elements of a row of keys or values were written; kv_reads(p, n): all of them were
//           before. The CPU checks both; nothing elsewhere
#pragma once

#include "fragments.cuh"
#include "prelude_cuda.cuh"
#include "prelude_hip.cuh"
#include "prelude_simt.cuh"
#include "words.cuh"

namespace cleave {

// ---- Places

DEVICE int lane() { return thread_x() % WARP; }
DEVICE int warp() { return thread_x() / WARP; }

// ---- Integers

template <class T>
DEVICE constexpr T min(T a, T b) {
    return a < b ? a : b;
}
template <class T>
DEVICE constexpr T max(T a, T b) {
    return a > b ? a : b;
}
template <class T>
DEVICE constexpr T ceil_div(T a, T b) {
    return (a + b - 1) / b;
}
template <class T>
DEVICE constexpr T round_up(T a, T b) {
    return ceil_div(a, b) * b;
}

// ---- 16-bit numbers

DEVICE float to_float(float v) { return v; }
DEVICE float to_float(f16 v) { return f16_to_float(v.bits); }
DEVICE float to_float(bf16 v) { return as_float(u32(v.bits) << 16); }

template <class T>
struct FromFloat;
template <>
struct FromFloat<float> {
    static DEVICE float of(float v) { return v; }
};
template <>
struct FromFloat<f16> {
    static DEVICE f16 of(float v) { return f16{float_to_f16(v)}; }
};
// Rounds to nearest even; a NaN stays one.
template <>
struct FromFloat<bf16> {
    static DEVICE bf16 of(float v) {
        u32 bits = as_u32(v);
        u32 rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
        return bf16{u16(v != v ? (bits >> 16 | 0x40u) : rounded)};
    }
};
template <class T>
DEVICE T from_float(float v) {
    return FromFloat<T>::of(v);
}

// ---- KV cache: what the CPU checks

#if !defined(CLEAVE_SIMT_CHECKS)
DEVICE i32 kv_block_id(i32 id, i64 CLEAVE_HERE) { return id; }
template <class T>
DEVICE void kv_wrote(const T*, int) {}
template <class T>
DEVICE void kv_reads(const T*, int CLEAVE_HERE) {}
#endif

// ---- Vectors of consecutive elements

template <class T, int N>
struct alignas(sizeof(T) * N) Vector {
    T v[N];
    DEVICE T& operator[](int i) { return v[i]; }
    DEVICE const T& operator[](int i) const { return v[i]; }
};

// `p` is aligned to the vector's size, at most 16 bytes.
template <int N, class T>
DEVICE Vector<T, N> load_vector(const T* p) {
    static_assert(sizeof(Vector<T, N>) <= 16, "a load moves at most 16 bytes");
    return *reinterpret_cast<const Vector<T, N>*>(p);
}
template <int N, class T>
DEVICE void store_vector(T* p, Vector<T, N> v) {
    static_assert(sizeof(Vector<T, N>) <= 16, "a store moves at most 16 bytes");
    *reinterpret_cast<Vector<T, N>*>(p) = v;
}

// Floats as one store: for architectures before sm_100 NVRTC makes one store each of those that it
// finds in an address with two variable parts.
template <int N, class T>
DEVICE void write_vector(T* p, Vector<T, N> v) {
    store_vector(p, v);
}
#if defined(CLEAVE_CUDA)
DEVICE void write_vector(float* p, Vector<float, 4> v) { write_floats(p, v[0], v[1], v[2], v[3]); }
DEVICE void write_vector(float* p, Vector<float, 2> v) { write_floats(p, v[0], v[1]); }
#endif

// ---- Numbers

#define kInfinity (::cleave::as_float(0x7f800000u))

DEVICE float exp(float x) { return exp2(x * 1.4426950408889634f); }
DEVICE float sigmoid(float x) { return reciprocal(1.0f + exp(-x)); }
// 1 - 2 / (exp(2x) + 1) loses its digits near zero, where the odd series is exact to the last bit.
DEVICE float tanh(float x) {
    float square = x * x;
    float series =
        x * (1.0f + square * (-0.33333333f + square * (0.13333333f - 0.053968254f * square)));
    float epilogue = 1.0f - 2.0f * reciprocal(exp(2.0f * x) + 1.0f);
    return square < 0.04f ? series : epilogue;
}

// ---- Reductions of a warp

// A butterfly: every lane adds in the same order of pairs, so that all of them get the same bits.
// (The CPU does all its steps in one meeting of the warp.)
#if !defined(CLEAVE_SIMT)
template <int WIDTH>
DEVICE float group_sum(float v) {
#pragma unroll
    for (int step = WIDTH / 2; step > 0; step /= 2) v += shuffle_xor(v, step);
    return v;
}
template <int WIDTH>
DEVICE float group_max(float v) {
#pragma unroll
    for (int step = WIDTH / 2; step > 0; step /= 2) v = max(v, shuffle_xor(v, step));
    return v;
}
#endif
DEVICE float warp_sum(float v CLEAVE_HERE) { return group_sum<WARP>(v CLEAVE_AT); }
DEVICE float warp_max(float v CLEAVE_HERE) { return group_max<WARP>(v CLEAVE_AT); }
#if !defined(CLEAVE_SIMT)
DEVICE bool warp_any(bool p) { return ballot(p) != 0; }
DEVICE bool warp_all(bool p) { return ballot(!p) == 0; }
#endif

// ---- Launches, where the device has none that overlap

#if !defined(CLEAVE_OVERLAP)
DEVICE void await_previous_launch() {}
#endif

// ---- Asynchronous copies, where the device has none

#if !defined(CLEAVE_ASYNC_COPIES)
template <int BYTES>
DEVICE void async_copy(void* shared, const void* global, bool valid = true) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16,
                  "an asynchronous copy moves 4, 8 or 16 bytes");
    using Words = Vector<u32, BYTES / 4>;
    // Word by word: a conditional copy of the whole would go through private memory.
    u32 word[BYTES / 4];
#pragma unroll
    for (int i = 0; i < BYTES / 4; ++i) word[i] = 0u;
    if (valid) {
        Words loaded = *static_cast<const Words*>(global);
#pragma unroll
        for (int i = 0; i < BYTES / 4; ++i) word[i] = loaded.v[i];
    }
    Words words;
#pragma unroll
    for (int i = 0; i < BYTES / 4; ++i) words.v[i] = word[i];
    *static_cast<Words*>(shared) = words;
}
DEVICE void async_commit() {}
template <int PENDING>
DEVICE void async_wait() {}
#endif

// ---- Matrix tiles

#if defined(CLEAVE_MATRIX)

// One 16 x 16 x 16 product of a warp, by the instruction that the target has.
struct Tile {
#if defined(CLEAVE_MMA_SYNC)
    // Two instructions side by side: elements of the right half of B and C follow those of the
    // left.
    using Half = MmaSync16n8k16;
    static constexpr int kA = 8, kB = 8, kC = 8;
    static DEVICE constexpr int a_row(int l, int i) { return Half::a_row(l, i); }
    static DEVICE constexpr int a_depth(int l, int i) { return Half::a_depth(l, i); }
    static DEVICE constexpr int b_depth(int l, int i) { return Half::b_depth(l, i % 4); }
    static DEVICE constexpr int b_col(int l, int i) { return Half::b_col(l, i % 4) + 8 * (i / 4); }
    static DEVICE constexpr int c_row(int l, int i) { return Half::c_row(l, i % 4); }
    static DEVICE constexpr int c_col(int l, int i) { return Half::c_col(l, i % 4) + 8 * (i / 4); }
#else
#if defined(CLEAVE_MFMA)
    // Types whose instruction is less deep take several: the first has the first elements of every
    // lane, depths with gaps between, but the same ones of A and B.
    using Whole = Mfma16x16x16;
#elif defined(CLEAVE_WMMA_GFX11)
    using Whole = WmmaGfx11;
#else
    using Whole = WmmaGfx12;
#endif
    static constexpr int kA = Whole::kA, kB = Whole::kB, kC = Whole::kC;
    static DEVICE constexpr int a_row(int l, int i) { return Whole::a_row(l, i); }
    static DEVICE constexpr int a_depth(int l, int i) { return Whole::a_depth(l, i); }
    static DEVICE constexpr int b_depth(int l, int i) { return Whole::b_depth(l, i); }
    static DEVICE constexpr int b_col(int l, int i) { return Whole::b_col(l, i); }
    static DEVICE constexpr int c_row(int l, int i) { return Whole::c_row(l, i); }
    static DEVICE constexpr int c_col(int l, int i) { return Whole::c_col(l, i); }
#endif
};

// Registers hold pairs of 16-bit elements, the lower index in the lower half, or one float.
template <class T>
struct FragmentA {
    static constexpr int kOfWord = 4 / int(sizeof(T));
    u32 word[Tile::kA / kOfWord];
};
template <class T>
struct FragmentB {
    static constexpr int kOfWord = 4 / int(sizeof(T));
    u32 word[Tile::kB / kOfWord];
};
struct FragmentC {
    float v[Tile::kC];
};

DEVICE FragmentC zero_c() {
    FragmentC c;
#pragma unroll
    for (int i = 0; i < Tile::kC; ++i) c.v[i] = 0.0f;
    return c;
}

// A from rows of `stride` elements (whole words, and the pointer aligned to 4): element [r, k] at
// p[r * stride + k]. Rows from `rows` and depths from `depth` (whole words) on read as zero and are
// not touched.
template <class T>
DEVICE FragmentA<T> load_a(const T* p, int stride, int rows = 16, int depth = 16) {
    FragmentA<T> a;
#pragma unroll
    for (int j = 0; j < Tile::kA / a.kOfWord; ++j) {
        int r = Tile::a_row(lane(), a.kOfWord * j), k = Tile::a_depth(lane(), a.kOfWord * j);
        a.word[j] = r < rows && k < depth ? *reinterpret_cast<const u32*>(p + r * stride + k) : 0u;
    }
    return a;
}

// B whose columns are rows in memory (weights [out, in], keys [position, head_dim]): element [k, c]
// at p[c
// * stride + k].
template <class T>
DEVICE FragmentB<T> load_b(const T* p, int stride, int cols = 16, int depth = 16) {
    FragmentB<T> b;
#pragma unroll
    for (int j = 0; j < Tile::kB / b.kOfWord; ++j) {
        int c = Tile::b_col(lane(), b.kOfWord * j), k = Tile::b_depth(lane(), b.kOfWord * j);
        b.word[j] = c < cols && k < depth ? *reinterpret_cast<const u32*>(p + c * stride + k) : 0u;
    }
    return b;
}

// B as it is (values [position, head_dim]): element [k, c] at p[k * stride + c].
template <class T>
DEVICE FragmentB<T> load_b_transposed(const T* p, int stride, int cols = 16, int depth = 16) {
    FragmentB<T> b;
#pragma unroll
    for (int j = 0; j < Tile::kB / 2; ++j) {
        int c = Tile::b_col(lane(), 2 * j), k = Tile::b_depth(lane(), 2 * j);
        u32 low = c < cols && k < depth ? p[k * stride + c].bits : 0u;
        u32 high = c < cols && k + 1 < depth ? p[(k + 1) * stride + c].bits : 0u;
        b.word[j] = low | high << 16;
    }
    return b;
}
#if defined(CLEAVE_MFMA)
DEVICE FragmentB<float> load_b_transposed(const float* p, int stride, int cols = 16,
                                          int depth = 16) {
    FragmentB<float> b;
#pragma unroll
    for (int i = 0; i < Tile::kB; ++i) {
        int c = Tile::b_col(lane(), i), k = Tile::b_depth(lane(), i);
        b.word[i] = as_u32(c < cols && k < depth ? p[k * stride + c] : 0.0f);
    }
    return b;
}
#endif

// c += a b, for the whole warp.
template <class T>
DEVICE void multiply_add(FragmentC& c, const FragmentA<T>& a, const FragmentB<T>& b CLEAVE_HERE) {
#if defined(CLEAVE_MMA_SYNC)
    matrix_multiply_add<T>(c.v, a.word, b.word CLEAVE_AT);
    matrix_multiply_add<T>(c.v + 4, a.word, b.word + 2 CLEAVE_AT);
#else
    matrix_multiply_add<T>(c.v, a.word, b.word CLEAVE_AT);
#endif
}

#endif

// ---- Products of a warpgroup

#if defined(CLEAVE_WGMMA)

template <int N>
struct WarpgroupSum {
    using Layout = Wgmma64<N>;
    static constexpr int kC = Layout::kC;
    float v[kC];
    DEVICE void clear() {
#pragma unroll
        for (int i = 0; i < kC; ++i) v[i] = 0.0f;
        hold();
    }
    // Keeps the compiler from moving what reads the registers in front of the wait before this, or
    // what writes them behind the fence after it (PTX ISA, "wgmma.fence": it is between both
    // and the product).
    DEVICE void hold() {
#pragma unroll
        for (int i = 0; i < kC; ++i) wgmma_hold(v[i]);
    }
    DEVICE float at(int i CLEAVE_HERE) const {
        wgmma_read(v CLEAVE_AT);
        return v[i];
    }
};

// sum += a b; T is f16 or bf16. All threads of the warpgroup.
template <class T, int N>
DEVICE void wgmma(WarpgroupSum<N>& sum, u64 a, u64 b CLEAVE_HERE) {
    wgmma_issue<T, N>(sum.v, a, b CLEAVE_AT);
}

// 64 x 16 of A.
template <class T>
struct WarpgroupFragment {
    u32 pair[4];
    DEVICE void set(int i, float low, float high) {
#if defined(CLEAVE_CUDA)
        pair[i] = narrow_pair<T>(low, high);
#else
        pair[i] = u32(from_float<T>(low).bits) | u32(from_float<T>(high).bits) << 16;
#endif
    }
    DEVICE void hold() {
#pragma unroll
        for (int i = 0; i < 4; ++i) wgmma_hold(pair[i]);
    }
};
template <class T, int N>
DEVICE void wgmma(WarpgroupSum<N>& sum, const WarpgroupFragment<T>& a, u64 b CLEAVE_HERE) {
    wgmma_issue<T, N>(sum.v, a.pair, b CLEAVE_AT);
}

#endif

}  // namespace cleave
