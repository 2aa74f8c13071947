// SPDX-License-Identifier: Apache-2.0
// What all kinds of attention share: arguments, scores in base 2, and which keys a block of many
// tokens attends to.
#pragma once

#include "kv_cache.cuh"
#include "vectors.cuh"

namespace cleave {

constexpr float kLog2E = 1.4426950408889634f;
constexpr i64 kCounterBytes = 8192;

template <class C>
struct AttentionArgs {
    const typename C::X* q = nullptr;  // [num_tokens, kQStride], columns from kQOffset
    const typename C::Kv* kv = nullptr;
    i64 num_blocks = 0;
    const i32* blocks = nullptr;  // [slots, blocks_per_slot]
    i64 blocks_per_slot = 0;
    typename C::X* out = nullptr;  // [num_tokens, kQHeads * kVHeadDim]
    const i32* positions = nullptr;
    const i32* slots = nullptr;
    float* scratch = nullptr;              // decode, kSplits > 1
    const i32* sequence_starts = nullptr;  // prefill
    i64 num_sequences = 0;
    i64 num_singles = 0;  // sequences in front that a launch of decode's attention takes
    i64 num_tokens = 0;

    DEVICE KvCache<C, const typename C::Kv> cache() const {
        return {kv, num_blocks, blocks, blocks_per_slot};
    }
};

// A score in base 2, with and without a cap.
template <class C>
DEVICE float capped(float dot) {
    if constexpr (C::kSoftcap > 0.0f)
        return C::kSoftcap * kLog2E * tanh(dot * (C::kScale / C::kSoftcap));
    return dot * (C::kScale * kLog2E);
}

// Narrowed probabilities are multiplied by 2^kLift, which the division by their total removes. In
// f16 those below 2^-14 would have fewer digits, and gfx90a's matrix instruction reads such
// numbers as zero; there may be thousands of them.
template <class T>
constexpr float kLift = 0.0f;
template <>
constexpr float kLift<f16> = 14.0f;

// The scales of staged values of 8 bits. Weights become f16 times their value's scale, which may be
// any number: sums, and weights with them, are divided by the power of two from the largest scale
// so far on, which write() multiplies by. Of powers of two, no bit of a sum depends on which it
// was.
template <class C>
struct ValueScales {
    static constexpr int kKeys = int(C::kKeys);
    float unit = as_float(17u << 23);  // 2^-110

    // By each warp, before the staged keys' weights: what the sums so far are to be multiplied by.
    DEVICE float take(const float* scales) {
        float largest = 0.0f;
        for (int j = lane(); j < kKeys; j += WARP)
            if (scales[j] < kInfinity) largest = max(largest, scales[j]);
        largest = warp_max(largest);
        const float before = unit;
        unit = max(unit, as_float((as_u32(largest) + 0x7fffffu) & 0xff800000u));
        return before * inverse_factor(unit);
    }
    // A weight, 0 where the key is not seen, whatever its scale is.
    DEVICE float weight(float p, float scale, bool seen) const {
        return seen ? p * (scale * inverse_factor(unit)) : 0.0f;
    }
};

// Copies of a thread for which stage_rows reads the block table at once.
#if defined(CLEAVE_HIP)
constexpr int kStagedAtOnce = 4;
#else
constexpr int kStagedAtOnce = 8;
#endif

// 2^(a - b), where a may be -infinity, and b with it.
DEVICE float rescale(float a, float b) { return a == -kInfinity ? 0.0f : exp2(a - b); }

// Prefill: up to C::kQueries neighbouring tokens of one sequence and one query head, and the keys
// that they see. Of a sequence the last tokens come first, of all heads: they see the most keys,
// and what starts last should be short.
template <class C>
struct PrefillWork {
    i64 t0 = 0, head = block_x() % C::kQHeads;
    int tokens = 0;  // 0: this block has none
    int begin = 0, end = 0;
    KvRows<C, const typename C::Kv> rows{};

    DEVICE explicit PrefillWork(const AttentionArgs<C>& a) {
        i64 tile = block_x() / C::kQHeads;
        for (i64 s = a.num_singles; s < a.num_sequences && tokens == 0; ++s) {
            i64 from = a.sequence_starts[s], count = a.sequence_starts[s + 1] - from;
            i64 tiles = ceil_div<i64>(count, C::kQueries);
            if (tile < tiles) {
                const i64 first = (tiles - 1 - tile) * C::kQueries;
                t0 = from + first;
                tokens = int(min<i64>(C::kQueries, count - first));
            }
            tile -= tiles;
        }
        if (tokens == 0) return;
        end = a.positions[t0 + tokens - 1] + 1;
        if (C::kWindow > 0) begin = int(max<i64>(0, a.positions[t0] + 1 - C::kWindow));
        rows = a.cache().rows(a.slots[t0], (C::kFirstHead + head) / C::kGroup);
    }
    DEVICE const typename C::X* q(const AttentionArgs<C>& a) const {
        return a.q + t0 * C::kQStride + C::kQOffset + head * C::kHeadDim;
    }
    DEVICE typename C::X* out(const AttentionArgs<C>& a) const {
        return a.out + (t0 * C::kQHeads + head) * C::kVHeadDim;
    }
};

// Keys [key, key + kKeys) on their way to shared memory: kCount copies, kThreads at a time, copy i
// of row row_of(i). Calls copy(i, position, its block, whether it is before `end`); rows behind are
// those of `key`. The table is read for several copies before the first of them, as no load
// passes a store into shared memory.
template <int kCount, int kThreads, class Rows, class RowOf, class Copy>
DEVICE void stage_rows(const Rows& rows, int key, int end, const RowOf& row_of, const Copy& copy) {
    constexpr int kAtOnce = min(turns(kStagedAtOnce), ceil_div(kCount, kThreads));
    for (int first = thread_x(); first < kCount; first += kAtOnce * kThreads) {
        i32 block[kAtOnce];
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n) {
            const int position = key + row_of(first + n * kThreads);
            block[n] = rows.block(position < end ? position : key);
        }
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n) {
            const int i = first + n * kThreads;
            if (kCount % (kAtOnce * kThreads) != 0 && i >= kCount) continue;
            const int position = key + row_of(i);
            const bool valid = position < end;
            copy(i, valid ? position : key, block[n], valid);
        }
    }
}

}  // namespace cleave
