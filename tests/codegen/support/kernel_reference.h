// SPDX-License-Identifier: Apache-2.0
// Double-precision references that several kernel tests share, and ragged batches: tokens of
// several sequences, each with its slot and position.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "codegen/kernel/spec.h"
#include "tests/codegen/support/kernel_runner.h"
#include "tests/codegen/support/scaled_slab.h"

namespace cleave::test {

using Row = std::vector<double>;

struct RaggedBatch {
    std::vector<int32_t> positions, slots;
    int64_t num_tokens() const { return static_cast<int64_t>(positions.size()); }
    // In front, alone in their sequences.
    int64_t num_singles() const {
        size_t t = 0;
        while (t < slots.size() && (t + 1 == slots.size() || slots[t] != slots[t + 1])) ++t;
        return static_cast<int64_t>(t);
    }
    // `count` tokens of the sequence in `slot`, from `first`.
    RaggedBatch& add(int32_t slot, int32_t first, int32_t count) {
        for (int32_t i = 0; i < count; ++i) {
            slots.push_back(slot);
            positions.push_back(first + i);
        }
        return *this;
    }
};

inline Row read_row(const GuardedBuffer& x, int64_t t, const codegen::View& view, int64_t n) {
    Row row;
    for (int64_t i = 0; i < n; ++i) row.push_back(x.at(t * view.stride + view.offset + i));
    return row;
}

inline void rms_norm(Row& x, const GuardedBuffer& weight, double epsilon, double offset) {
    double squares = 0.0;
    for (double v : x) squares += v * v;
    double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + epsilon);
    for (size_t i = 0; i < x.size(); ++i)
        x[i] *= scale * (weight.at(static_cast<int64_t>(i)) + offset);
}

// Row `row` of a [.., in] matrix times x, plus bias.
inline double dot(const GuardedBuffer& weight, int64_t row, const Row& x,
                  const GuardedBuffer* bias) {
    double sum = bias ? bias->at(row) : 0.0;
    for (size_t i = 0; i < x.size(); ++i)
        sum += weight.at(row * static_cast<int64_t>(x.size()) + static_cast<int64_t>(i)) * x[i];
    return sum;
}

// table: cos then sin, each [context, rotary / 2].
inline void rope(Row& head, const codegen::RopeSpec& spec, const GuardedBuffer& table,
                 int64_t context, int64_t position) {
    int64_t half = spec.rotary / 2;
    for (int64_t i = 0; i < half; ++i) {
        auto a = static_cast<size_t>(spec.interleaved ? 2 * i : i);
        auto b = static_cast<size_t>(spec.interleaved ? 2 * i + 1 : i + half);
        double cos = table.at(position * half + i), sin = table.at((context + position) * half + i);
        double x = head[a], y = head[b];
        head[a] = x * cos - y * sin;
        head[b] = y * cos + x * sin;
    }
}

inline double activate(importer::Activation activation, double x) {
    switch (activation) {
        case importer::Activation::kSilu: return x / (1.0 + std::exp(-x));
        case importer::Activation::kGeluTanh:
            return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
        case importer::Activation::kGeluErf: return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0)));
        case importer::Activation::kRelu: return x > 0.0 ? x : 0.0;
        case importer::Activation::kRelu2: return x > 0.0 ? x * x : 0.0;
    }
    return 0.0;
}

// Where a slab's elements are: K [kv_heads, num_blocks, 16, head_dim], then V [kv_heads,
// num_blocks, 16, v_head_dim]. Within a block GPUs keep keys as rows, hosts feature by feature.
struct SlabPlace {
    static constexpr int64_t kBlock = 16;
    int64_t num_blocks = 0, blocks_per_slot = 0;
    std::vector<int32_t> blocks;  // [slots, blocks_per_slot]
    bool key_rows = false;

    int64_t num_slots() const { return static_cast<int64_t>(blocks.size()) / blocks_per_slot; }
    // Position 0 of the block with `position`, among the positions of all heads.
    int64_t block_row(int64_t slot, int64_t head, int64_t position) const {
        const int32_t block =
            blocks.at(static_cast<size_t>(slot * blocks_per_slot + position / kBlock));
        return (head * num_blocks + block) * kBlock;
    }
};

// The table that gives the slots their blocks in order.
inline SlabPlace identity_place(int64_t slots, int64_t context, bool key_rows = false) {
    const int64_t per_slot = (context + SlabPlace::kBlock - 1) / SlabPlace::kBlock;
    SlabPlace place{1 + slots * per_slot, per_slot, {}, key_rows};
    for (int64_t i = 0; i < slots * per_slot; ++i)
        place.blocks.push_back(static_cast<int32_t>(1 + i));
    return place;
}

// The slots' blocks in random order; two blocks belong to no slot, block 0 and another.
inline SlabPlace shuffled_place(int64_t slots, int64_t context, bool key_rows = false) {
    SlabPlace place = identity_place(slots, context, key_rows);
    ++place.num_blocks;
    std::mt19937 rng(static_cast<uint32_t>(slots * 1000 + context));
    place.blocks.push_back(static_cast<int32_t>(place.num_blocks - 1));
    std::shuffle(place.blocks.begin(), place.blocks.end(), rng);
    place.blocks.pop_back();
    return place;
}

inline int64_t key_index(const codegen::SlabSpec& s, const SlabPlace& place, int64_t slot,
                         int64_t head, int64_t position, int64_t feature) {
    const int64_t first = place.block_row(slot, head, position) * s.head_dim;
    const int64_t row = position % SlabPlace::kBlock;
    return first +
           (place.key_rows ? row * s.head_dim + feature : feature * SlabPlace::kBlock + row);
}
inline int64_t value_index(const codegen::SlabSpec& s, const SlabPlace& place, int64_t slot,
                           int64_t head, int64_t position) {
    const int64_t row = place.block_row(slot, head, position) + position % SlabPlace::kBlock;
    return s.heads * place.num_blocks * SlabPlace::kBlock * s.head_dim + row * s.v_head_dim;
}
// With the scales of 8-bit elements, which are 4 of them each.
inline int64_t slab_elements(const codegen::SlabSpec& s, const SlabPlace& place) {
    return s.heads * place.num_blocks * SlabPlace::kBlock *
           (s.head_dim + s.v_head_dim + (is_scaled(s.dtype) ? 8 : 0));
}

// NaN in every block that no slot has, and in its scales.
inline void poison_free_blocks(GuardedBuffer& kv, const codegen::SlabSpec& s,
                               const SlabPlace& place) {
    auto fill = [&](int64_t first, int64_t count) {
        for (int64_t i = 0; i < count; ++i)
            kv.set(first + i, std::numeric_limits<double>::quiet_NaN());
    };
    const int64_t keys = SlabPlace::kBlock * s.head_dim, values = SlabPlace::kBlock * s.v_head_dim;
    for (int64_t block = 0; block < place.num_blocks; ++block) {
        if (std::find(place.blocks.begin(), place.blocks.end(), block) != place.blocks.end())
            continue;
        SlabPlace free = place;
        free.blocks.assign(1, static_cast<int32_t>(block));
        for (int64_t head = 0; head < s.heads; ++head) {
            for (int64_t row = 0; is_scaled(s.dtype) && row < 2 * SlabPlace::kBlock; ++row)
                set_scale(kv, s, free, {row % 2 == 1, 0, head, row / 2},
                          std::numeric_limits<float>::quiet_NaN());
            fill((head * place.num_blocks + block) * keys, keys);
            fill(s.heads * place.num_blocks * keys + (head * place.num_blocks + block) * values,
                 values);
        }
    }
}

// Softmax over the keys that the query sees, in double.
inline Row attend(const codegen::AttentionSpec& s, const Row& q, const GuardedBuffer& kv,
                  const SlabPlace& place, int64_t slot, int64_t kv_head, int64_t position) {
    int64_t first = s.window > 0 ? std::max<int64_t>(0, position + 1 - s.window) : 0;
    std::vector<double> scores;
    double top = -std::numeric_limits<double>::infinity(), total = 0.0;
    for (int64_t key = first; key <= position; ++key) {
        double score = 0.0;
        for (size_t i = 0; i < q.size(); ++i)
            score += q[i] * slab_at(kv, s.slab, place, {false, slot, kv_head, key},
                                    static_cast<int64_t>(i));
        score *= s.scale;
        if (s.softcap > 0.0) score = s.softcap * std::tanh(score / s.softcap);
        scores.push_back(score);
        top = std::max(top, score);
    }
    for (double& score : scores) total += score = std::exp(score - top);
    Row out(static_cast<size_t>(s.slab.v_head_dim));
    for (int64_t key = first; key <= position; ++key) {
        double p = scores[static_cast<size_t>(key - first)] / total;
        for (size_t i = 0; i < out.size(); ++i)
            out[i] +=
                p * slab_at(kv, s.slab, place, {true, slot, kv_head, key}, static_cast<int64_t>(i));
    }
    return out;
}

}  // namespace cleave::test
