// SPDX-License-Identifier: Apache-2.0
// Double-precision references that several kernel tests share, and ragged batches: tokens of
// several sequences, each with its slot and position.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "codegen/kernel/spec.h"
#include "tests/codegen/support/kernel_runner.h"

namespace cleave::test {

using Row = std::vector<double>;

struct RaggedBatch {
    std::vector<int32_t> positions, slots;
    int64_t num_tokens() const { return static_cast<int64_t>(positions.size()); }
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

// Elements of a slab: keys [slots, heads, context] in blocks of up to 16 positions, feature by
// feature (templates/host/kv_cache.h), then values [slots, heads, context, v_head_dim].
inline int64_t key_index(const codegen::SlabSpec& s, int64_t context, int64_t slot, int64_t head,
                         int64_t position, int64_t feature) {
    constexpr int64_t kBlock = 16;
    int64_t first = position / kBlock * kBlock, width = std::min(kBlock, context - first);
    return ((slot * s.heads + head) * context + first) * s.head_dim + feature * width + position -
           first;
}
// The slab of a device: GPUs keep keys as rows, hosts in those blocks.
struct SlabPlace {
    int64_t num_slots, context;
    bool key_rows = false;
};
inline int64_t key_index(const codegen::SlabSpec& s, const SlabPlace& place, int64_t slot,
                         int64_t head, int64_t position, int64_t feature) {
    if (!place.key_rows) return key_index(s, place.context, slot, head, position, feature);
    return ((slot * s.heads + head) * place.context + position) * s.head_dim + feature;
}
inline int64_t value_index(const codegen::SlabSpec& s, int64_t num_slots, int64_t context,
                           int64_t slot, int64_t head, int64_t position) {
    return num_slots * s.heads * context * s.head_dim +
           ((slot * s.heads + head) * context + position) * s.v_head_dim;
}
inline int64_t slab_elements(const codegen::SlabSpec& s, int64_t num_slots, int64_t context) {
    return num_slots * s.heads * context * (s.head_dim + s.v_head_dim);
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
            score +=
                q[i] * kv.at(key_index(s.slab, place, slot, kv_head, key, static_cast<int64_t>(i)));
        score *= s.scale;
        if (s.softcap > 0.0) score = s.softcap * std::tanh(score / s.softcap);
        scores.push_back(score);
        top = std::max(top, score);
    }
    for (double& score : scores) total += score = std::exp(score - top);
    Row out(static_cast<size_t>(s.slab.v_head_dim));
    for (int64_t key = first; key <= position; ++key) {
        int64_t at = value_index(s.slab, place.num_slots, place.context, slot, kv_head, key);
        double p = scores[static_cast<size_t>(key - first)] / total;
        for (size_t i = 0; i < out.size(); ++i) out[i] += p * kv.at(at + static_cast<int64_t>(i));
    }
    return out;
}

}  // namespace cleave::test
