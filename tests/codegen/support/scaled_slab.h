// SPDX-License-Identifier: Apache-2.0
// KV slabs of 8 bits in tests: behind the elements, f32 scales [heads, num_blocks, 16] of keys,
// then of values; an element is its number times the scale of its head and position. In: rows in
// double; out: what the slab holds of them, by arithmetic of its own.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "codegen/kernel/spec.h"
#include "tests/codegen/support/kernel_runner.h"

namespace cleave::test {

struct SlabPlace;

inline bool is_scaled(DType dtype) { return dtype == DType::kInt8 || dtype == DType::kF8E4M3; }
// The largest number of the type.
inline double largest_element(DType dtype) { return dtype == DType::kInt8 ? 127.0 : 448.0; }

// A row of a slab.
struct SlabRow {
    bool is_value = false;
    int64_t slot = 0, head = 0, position = 0;
};

// Where the row's scale is: bytes from the slab's begin.
int64_t scale_byte(const codegen::SlabSpec& s, const SlabPlace& place, const SlabRow& row);
float scale_of(const GuardedBuffer& kv, const codegen::SlabSpec& s, const SlabPlace& place,
               const SlabRow& row);
void set_scale(GuardedBuffer& kv, const codegen::SlabSpec& s, const SlabPlace& place,
               const SlabRow& row, float scale);
// Feature `d` of the row, of any type of slab.
double slab_at(const GuardedBuffer& kv, const codegen::SlabSpec& s, const SlabPlace& place,
               const SlabRow& row, int64_t d);
// The row's features, rounded to what the slab holds.
void set_row(GuardedBuffer& kv, const codegen::SlabSpec& s, const SlabPlace& place,
             const SlabRow& row, const std::vector<double>& features);

// A slab full of random elements, with scales of many sizes where its type has them.
GuardedBuffer random_slab(const codegen::SlabSpec& s, const SlabPlace& place, std::mt19937& rng);

// What a launch was to write into a slab of 8 bits.
struct WrittenRow {
    SlabRow row;
    std::vector<double> features;
};
// What is wrong with `got`: rows that were written, and all other bytes, which are `before`'s.
// Empty: nothing. `tolerance` is that of the features, of the row's largest; 0: the slab holds the
// nearest element of each to the bit.
std::string compare_scaled_slab(const GuardedBuffer& got, GuardedBuffer before,
                                const codegen::SlabSpec& s, const SlabPlace& place,
                                const std::vector<WrittenRow>& written, double tolerance);

}  // namespace cleave::test
