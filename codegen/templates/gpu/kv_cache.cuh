// SPDX-License-Identifier: Apache-2.0
// The KV pool as kernels see it: keys [kSlabHeads, num_blocks, kKvBlock, kHeadDim], then values
// [kSlabHeads, num_blocks, kKvBlock, kVHeadDim]. The block table [slots, blocks_per_slot] names the
// blocks that hold a slot's positions. Kernels reach rows through these accessors alone, so that
// another arrangement changes no kernel, and so that the CPU can check each block's id and that a
// row is written before it is read.
//
// Behind elements of 8 bits are their scales, f32 [kSlabHeads, num_blocks, kKvBlock] of keys, then
// as many of values: an element is its number times the scale of its head and position. A scale for
// a block would have to change when a position is appended, and with it what earlier ones hold:
// then bits would depend on how tokens are cut into passes.
#pragma once

#include "eight_bit.cuh"

namespace cleave {

constexpr int kKvBlock = 16;  // positions of a block

// How kernels take elements of the cache. Staged: their type in shared memory.
template <class T>
struct KvElement {
    using Staged = T;
    static constexpr bool kScaled = false;
};
struct ScaledKvElement {
    using Staged = f16;  // holds each number of 8 bits exactly
    static constexpr bool kScaled = true;
};
template <>
struct KvElement<int8> : ScaledKvElement {
    static constexpr float kLargest = 127.0f;
};
template <>
struct KvElement<f8e4m3> : ScaledKvElement {
    static constexpr float kLargest = 448.0f;
};
template <class T>
struct KvElement<const T> : KvElement<T> {};

// Elements that a thread loads at once from rows of `n`: at most 8, so that lanes share a row of 8
// bits as they share one of 16.
template <class T>
DEVICE constexpr int kv_width(i64 n) {
    return min(load_width<T>(n), 8);
}

// N elements of a row as they are multiplied in shared memory.
template <int N, class T>
DEVICE Vector<typename KvElement<T>::Staged, N> load_staged(const T* p) {
    if constexpr (!KvElement<T>::kScaled) {
        return load_vector<N>(p);
    } else {
        Vector<f16, N> out;
        if constexpr (N % 4 == 0) {
            const Vector<u32, N / 4> words = load_vector<N / 4>(reinterpret_cast<const u32*>(p));
#pragma unroll
            for (int i = 0; i < N; i += 4) {
                const Vector<u32, 2> pairs = widen_four<T>(words[i / 4]);
#pragma unroll
                for (int j = 0; j < 4; ++j) out[i + j].bits = u16(pairs[j / 2] >> j % 2 * 16);
            }
        } else {
#pragma unroll
            for (int i = 0; i < N; ++i) out[i] = from_float<f16>(to_float(p[i]));
        }
        return out;
    }
}
// The same as f32, without their scale.
template <int N, class T>
DEVICE Floats<N> load_elements(const T* p) {
    if constexpr (!KvElement<T>::kScaled) {
        return load_floats<N>(p);
    } else {
        const Vector<f16, N> in = load_staged<N>(p);
        Floats<N> out;
#pragma unroll
        for (int i = 0; i < N; ++i) out[i] = to_float(in[i]);
        return out;
    }
}

template <class T>
struct ScaleOf {
    using type = float;
};
template <class T>
struct ScaleOf<const T> {
    using type = const float;
};

// The rows of one slot and head.
template <class C, class T>
struct KvRows {
    using Scale = typename ScaleOf<T>::type;
    T *keys, *values;                  // of block 0
    Scale *key_scales, *value_scales;  // of block 0, where elements have scales
    const i32* blocks;                 // of the slot
    i64 num_blocks;

    // The block that holds a position.
    DEVICE i32 block(i32 position CLEAVE_HERE) const {
        return kv_block_id(blocks[u32(position) / kKvBlock], num_blocks CLEAVE_AT);
    }
    // Rows of a position and the block that holds it.
    DEVICE T* key(i32 block, i32 position) const {
        return keys + i64(block) * (kKvBlock * C::kHeadDim) + row_in_block(position) * C::kHeadDim;
    }
    DEVICE T* value(i32 block, i32 position) const {
        return values + i64(block) * (kKvBlock * C::kVHeadDim) +
               row_in_block(position) * C::kVHeadDim;
    }
    DEVICE Scale* key_scale(i32 block, i32 position) const {
        return key_scales + i64(block) * kKvBlock + row_in_block(position);
    }
    DEVICE Scale* value_scale(i32 block, i32 position) const {
        return value_scales + i64(block) * kKvBlock + row_in_block(position);
    }
    // Before a row is read, by one of the threads that do: somebody has written it, and its scale.
    DEVICE void check_key(i32 block, i32 position CLEAVE_HERE) const {
        kv_reads(key(block, position), int(C::kHeadDim) CLEAVE_AT);
        if constexpr (KvElement<T>::kScaled) kv_reads(key_scale(block, position), 1 CLEAVE_AT);
    }
    DEVICE void check_value(i32 block, i32 position CLEAVE_HERE) const {
        kv_reads(value(block, position), int(C::kVHeadDim) CLEAVE_AT);
        if constexpr (KvElement<T>::kScaled) kv_reads(value_scale(block, position), 1 CLEAVE_AT);
    }
    static DEVICE int row_in_block(i32 position) { return int(u32(position) % kKvBlock); }
};

// Config: kSlabHeads, kHeadDim, kVHeadDim.
template <class C, class T>
struct KvCache {
    T* base;
    i64 num_blocks;
    const i32* blocks;
    i64 blocks_per_slot;

    DEVICE KvRows<C, T> rows(i64 slot, i64 head) const {
        const i64 positions = num_blocks * kKvBlock;
        KvRows<C, T> rows{};
        rows.keys = base + head * positions * C::kHeadDim;
        rows.values = base + positions * (C::kSlabHeads * C::kHeadDim + head * C::kVHeadDim);
        if constexpr (KvElement<T>::kScaled) {
            auto* scales = reinterpret_cast<typename ScaleOf<T>::type*>(
                base + positions * C::kSlabHeads * (C::kHeadDim + C::kVHeadDim));
            rows.key_scales = scales + head * positions;
            rows.value_scales = scales + (C::kSlabHeads + head) * positions;
        }
        rows.blocks = blocks + slot * blocks_per_slot;
        rows.num_blocks = num_blocks;
        return rows;
    }
};

// Neighbours of a row that write_scaled_row stores at once.
template <class C>
DEVICE constexpr int kv_run() {
    return min(load_width<int8>(gcd(C::kHeadDim, C::kVHeadDim)), 4);
}

// A warp writes a head's row of 8-bit elements and its scale: the row's largest magnitude becomes
// the type's. A row of zeros has the scale 0, one with a NaN or an infinity NaN; both then hold
// zeros, and so does one of less than 2^-100, whose inverse f32 may not hold. `kDim` features in
// runs of kRun; value(f) is feature f.
template <int kDim, int kRun, class T, class Value>
DEVICE void write_scaled_row(T* row, float* scale, const Value& value) {
    float largest = 0.0f;
    for (int f = lane(); f < kDim; f += WARP) {
        const float magnitude = abs(value(f));
        largest = max(largest, magnitude < kInfinity ? magnitude : kInfinity);
    }
    largest = warp_max(largest);
    constexpr float kLargest = KvElement<T>::kLargest;
    const bool is_finite = largest < kInfinity;
    const bool has_values = is_finite && largest >= as_float(27u << 23);
    const float factor = has_values ? kLargest / largest : 0.0f;
    for (int f = lane() * kRun; f < kDim; f += WARP * kRun) {
        Vector<T, kRun> run;
#pragma unroll
        for (int i = 0; i < kRun; ++i) {
            const float v = has_values ? value(f + i) * factor : 0.0f;
            run[i] = from_float<T>(max(min(v, kLargest), -kLargest));
        }
        store_vector(row + f, run);
        kv_wrote(row + f, kRun);
    }
    if (lane() == 0) {
        *scale = has_values ? largest / kLargest : is_finite ? 0.0f : as_float(0x7fc00000u);
        kv_wrote(scale, 1);
    }
}

}  // namespace cleave
