// SPDX-License-Identifier: Apache-2.0
// Double-precision references that several kernel tests share, and ragged batches: tokens of several sequences,
// each with its slot and position.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "codegen/kernel_spec.h"
#include "tests/codegen/kernel_runner.h"

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
    }
    return 0.0;
}

// Elements of a slab: keys [slots, heads, context] in blocks of up to 16 positions, feature by feature
// (templates/host/kv_cache.h), then values [slots, heads, context, v_head_dim].
inline int64_t key_index(const codegen::SlabSpec& s, int64_t context, int64_t slot, int64_t head,
                         int64_t position, int64_t feature) {
    constexpr int64_t kBlock = 16;
    int64_t first = position / kBlock * kBlock, width = std::min(kBlock, context - first);
    return ((slot * s.heads + head) * context + first) * s.head_dim + feature * width + position -
           first;
}
inline int64_t value_index(const codegen::SlabSpec& s, int64_t num_slots, int64_t context,
                           int64_t slot, int64_t head, int64_t position) {
    return num_slots * s.heads * context * s.head_dim +
           ((slot * s.heads + head) * context + position) * s.v_head_dim;
}
inline int64_t slab_elements(const codegen::SlabSpec& s, int64_t num_slots, int64_t context) {
    return num_slots * s.heads * context * (s.head_dim + s.v_head_dim);
}

}  // namespace cleave::test
