// SPDX-License-Identifier: Apache-2.0
// Attention of single tokens (decode): a block takes one token, up to kTogether query heads that
// share a KV head, and one of kSplits parts of the keys. kLanes neighbouring lanes hold a key and a
// value between them and take keys in turn, kAhead at a time, each group of lanes with a softmax of
// its own (Milakov and Gimelshein, arXiv 1805.02867); groups meet by shuffles, warps in shared
// memory, parts in scratch, where the last block to arrive adds them up (Dao et al.,
// "Flash-Decoding"). No barrier while keys are read. The scale of a key of 8 bits multiplies its
// score, that of a value its weight.
//
// Config: kHeadDim, kVHeadDim, kQHeads, kFirstHead (number of the first, counted from the slab's
// first group), kGroup, kSlabHeads, kScale, kWindow (0: none), kSoftcap (0: none), Kv, X, kQStride,
// kQOffset, kXAlign, kTogether, kLanes, kSplits, kThreads, kSharedBytes. Grid: [KV heads x cuts of
// a group, num_tokens, kSplits]. Scratch (kSplits > 1): kCounterBytes of counters, zero between
// launches, then [tokens, kQHeads, kSplits, kVHeadDim + 2] floats: sums, maximum (in base 2),
// total.
#pragma once

#include "attention.cuh"

namespace cleave {

template <class C>
struct DecodeTile {
    using T = typename C::Kv;
    using Rows = KvRows<C, const T>;
    static constexpr int kLanes = int(C::kLanes), kHeads = int(C::kTogether);
    static constexpr int kWarps = int(C::kThreads) / WARP, kInWarp = WARP / kLanes;
    static constexpr int kGroups = kWarps * kInWarp;  // that take keys in turn
    static constexpr bool kScaled = KvElement<T>::kScaled;
    static constexpr int kWidth = kv_width<T>(C::kHeadDim), kVWidth = kv_width<T>(C::kVHeadDim);
    static constexpr int kSlices = int(ceil_div<i64>(C::kHeadDim, kWidth* kLanes));
    static constexpr int kVSlices = int(ceil_div<i64>(C::kVHeadDim, kVWidth* kLanes));
    static constexpr int kAhead = kHeads * (kSlices * kWidth + kVSlices * kVWidth) <= 64 ? 4 : 2;
    static constexpr int kRecord = int(C::kVHeadDim) + 2;
    static constexpr i64 kSharedFloats = i64(kWarps) * kHeads * kRecord;

    Floats<kWidth> q[kHeads][kSlices];
    Floats<kVWidth> sum[kHeads][kVSlices];
    float top[kHeads], total[kHeads];

    static DEVICE int sub() { return thread_x() % kLanes; }
    static DEVICE int column(int slice) { return (slice * kLanes + sub()) * kWidth; }
    static DEVICE int v_column(int slice) { return (slice * kLanes + sub()) * kVWidth; }

    // Heads from `heads` on repeat the last one and are never written.
    DEVICE void start(const typename C::X* queries, int heads) {
#pragma unroll
        for (int h = 0; h < kHeads; ++h) {
            const typename C::X* from = queries + min(h, heads - 1) * C::kHeadDim;
#pragma unroll
            for (int s = 0; s < kSlices; ++s) {
                bool mine = column(s) < int(C::kHeadDim);
                if (mine) q[h][s] = load_floats<kWidth, int(C::kXAlign)>(from + column(s));
#pragma unroll
                for (int i = 0; i < kWidth; ++i) q[h][s][i] = mine ? q[h][s][i] : 0.0f;
            }
#pragma unroll
            for (int s = 0; s < kVSlices; ++s)
#pragma unroll
                for (int i = 0; i < kVWidth; ++i) sum[h][s][i] = 0.0f;
            top[h] = -kInfinity;
            total[h] = 0.0f;
        }
    }

    // Keys key, key + kGroups, ... (kAhead of them), those before `end`. A line of the table has
    // the blocks of 512 keys, so that its loads are of the first-level cache; blocks that are
    // looked up a turn ahead take registers that NVIDIA's compiler pays with a block less a
    // multiprocessor.
    DEVICE void take(const Rows& rows, int key, int end) {
        Floats<kWidth> k[kAhead][kSlices];
        Floats<kVWidth> v[kAhead][kVSlices];
        float k_scale[kAhead], v_scale[kAhead];
#pragma unroll
        for (int n = 0; n < kAhead; ++n) {
            int position = min(key + n * kGroups, end - 1);
            const i32 block = rows.block(position);
            const T *keys = rows.key(block, position), *values = rows.value(block, position);
            if (sub() == 0) rows.check_key(block, position), rows.check_value(block, position);
            k_scale[n] = v_scale[n] = 1.0f;
            if constexpr (kScaled) {
                k_scale[n] = *rows.key_scale(block, position);
                v_scale[n] = *rows.value_scale(block, position);
            }
#pragma unroll
            for (int s = 0; s < kSlices; ++s)
                k[n][s] = load_elements<kWidth>(keys + min(column(s), int(C::kHeadDim) - kWidth));
#pragma unroll
            for (int s = 0; s < kVSlices; ++s)
                v[n][s] =
                    load_elements<kVWidth>(values + min(v_column(s), int(C::kVHeadDim) - kVWidth));
        }
#pragma unroll
        for (int h = 0; h < kHeads; ++h) {
            float score[kAhead], next = top[h];
#pragma unroll
            for (int n = 0; n < kAhead; ++n) {
                float dot = 0.0f;
#pragma unroll
                for (int s = 0; s < kSlices; ++s)
#pragma unroll
                    for (int i = 0; i < kWidth; ++i) dot = fma(q[h][s][i], k[n][s][i], dot);
                dot = group_sum<kLanes>(dot);
                if constexpr (kScaled) dot *= k_scale[n];
                score[n] = key + n * kGroups < end ? capped<C>(dot) : -kInfinity;
                next = max(next, score[n]);
            }
            float keep = rescale(top[h], next);
            top[h] = next;
            total[h] *= keep;
#pragma unroll
            for (int s = 0; s < kVSlices; ++s)
#pragma unroll
                for (int i = 0; i < kVWidth; ++i) sum[h][s][i] *= keep;
#pragma unroll
            for (int n = 0; n < kAhead; ++n) {
                float p = rescale(score[n], next);
                total[h] += p;
                if constexpr (kScaled) p *= v_scale[n];
#pragma unroll
                for (int s = 0; s < kVSlices; ++s)
#pragma unroll
                    for (int i = 0; i < kVWidth; ++i)
                        sum[h][s][i] = fma(p, v[n][s][i], sum[h][s][i]);
            }
        }
    }

    // Groups of the warp into its first, which leaves a record of each head in shared memory.
    DEVICE void leave(float* shared) {
#pragma unroll
        for (int h = 0; h < kHeads; ++h) {
#pragma unroll
            for (int step = kLanes; step < WARP; step *= 2) {
                float other = shuffle_xor(top[h], step), next = max(top[h], other);
                float keep = rescale(top[h], next), add = rescale(other, next);
                top[h] = next;
                total[h] = total[h] * keep + shuffle_xor(total[h], step) * add;
#pragma unroll
                for (int s = 0; s < kVSlices; ++s)
#pragma unroll
                    for (int i = 0; i < kVWidth; ++i)
                        sum[h][s][i] = sum[h][s][i] * keep + shuffle_xor(sum[h][s][i], step) * add;
            }
            float* record = shared + (warp() * kHeads + h) * kRecord;
            if (lane() >= kLanes) continue;
#pragma unroll
            for (int s = 0; s < kVSlices; ++s)
#pragma unroll
                for (int i = 0; i < kVWidth; ++i)
                    if (v_column(s) < int(C::kVHeadDim)) record[v_column(s) + i] = sum[h][s][i];
            if (lane() == 0) {
                record[C::kVHeadDim] = top[h];
                record[C::kVHeadDim + 1] = total[h];
            }
        }
    }
};

// `count` records of one head, `stride` floats apart, in one: feature d, maximum and total.
template <class C, class Load>
DEVICE void join_records(int count, int d, const Load& load, float& value, float& top,
                         float& total) {
    top = -kInfinity;
    for (int i = 0; i < count; ++i) top = max(top, load(i, int(C::kVHeadDim)));
    value = 0.0f;
    total = 0.0f;
    for (int i = 0; i < count; ++i) {
        float weight = rescale(load(i, int(C::kVHeadDim)), top);
        value = fma(load(i, d), weight, value);
        total = fma(load(i, int(C::kVHeadDim) + 1), weight, total);
    }
}

template <class C>
DEVICE void attention_decode(const AttentionArgs<C>& a) {
    using D = DecodeTile<C>;
    static_assert(D::kSharedFloats * 4 <= C::kSharedBytes, "the tile claims what the kernel uses");
    constexpr int kCuts = int(ceil_div<i64>(C::kGroup, C::kTogether));
    constexpr int kVDim = int(C::kVHeadDim);
    DYNAMIC_SHARED(float, shared);
    const int part_of_token = block_x() % int(C::kBlocks);
    i64 t = block_x() / int(C::kBlocks);
    i64 kv_head = C::kFirstHead / C::kGroup + part_of_token / kCuts;
    i64 cut = kv_head * C::kGroup + part_of_token % kCuts * C::kTogether;
    i64 first = max<i64>(cut, C::kFirstHead) - C::kFirstHead;
    i64 stop = min<i64>(min<i64>(cut + C::kTogether, (kv_head + 1) * C::kGroup),
                        C::kFirstHead + C::kQHeads) -
               C::kFirstHead;
    int heads = int(stop - first);
    if (heads <= 0) return;

    int end = a.positions[t] + 1, begin = C::kWindow > 0 ? int(max<i64>(0, end - C::kWindow)) : 0;
    const int part = round_up(ceil_div(end - begin, int(C::kSplits)), D::kGroups);
    begin += block_z() * part;
    end = min(end, begin + part);
    const typename D::Rows rows = a.cache().rows(a.slots[t], kv_head);
    const int group = thread_x() / D::kLanes;
    D tile;
    tile.start(a.q + t * C::kQStride + C::kQOffset + first * C::kHeadDim, heads);
    for (int key = begin; key < end; key += D::kGroups * D::kAhead)
        tile.take(rows, key + group, end);
    tile.leave(shared);
    barrier();

    float* records = a.scratch + kCounterBytes / 4;
    for (int i = thread_x(); i < heads * kVDim; i += int(C::kThreads)) {
        int h = i / kVDim, d = i % kVDim;
        float value, top, total;
        join_records<C>(
            D::kWarps, d,
            [&](int w, int at) { return shared[(w * D::kHeads + h) * D::kRecord + at]; }, value,
            top, total);
        i64 head = t * C::kQHeads + first + h;
        if constexpr (C::kSplits == 1) {
            a.out[head * kVDim + d] = from_float<typename C::X>(value * reciprocal(total));
        } else {
            float* record = records + (head * C::kSplits + block_z()) * D::kRecord;
            store_volatile(record + d, value);
            if (d == 0) {
                store_volatile(record + kVDim, top);
                store_volatile(record + kVDim + 1, total);
            }
        }
    }
    if constexpr (C::kSplits > 1) {
        // The last of a head's parts adds them all up, and leaves the counter as it found it.
        u32* counter = reinterpret_cast<u32*>(a.scratch) + block_x();
        auto* last = reinterpret_cast<u32*>(shared + kVDim);  // a maximum that all have read
        fence_device();
        barrier();
        if (thread_x() == 0) *last = atomic_add(counter, 1u) == u32(C::kSplits) - 1;
        barrier();
        if (!*last) return;
        fence_device();
        for (int i = thread_x(); i < heads * kVDim; i += int(C::kThreads)) {
            int d = i % kVDim;
            i64 head = t * C::kQHeads + first + i / kVDim;
            const float* record = records + head * C::kSplits * D::kRecord;
            float value, top, total;
            join_records<C>(
                int(C::kSplits), d,
                [&](int s, int at) { return load_volatile(record + s * D::kRecord + at); }, value,
                top, total);
            a.out[head * kVDim + d] = from_float<typename C::X>(value * reciprocal(total));
        }
        if (thread_x() == 0) atomic_exchange(counter, 0u);
    }
}

}  // namespace cleave
