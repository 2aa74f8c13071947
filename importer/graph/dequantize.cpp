// SPDX-License-Identifier: Apache-2.0
#include "importer/graph/dequantize.h"

#include <vector>

#include "importer/weight_reader.h"
#include "runtime/base/convert.h"
#include "runtime/base/errors.h"

namespace cleave::importer {
namespace {

float floating_at(std::span<const std::byte> data, DType dtype, int64_t i) {
    const size_t size = dtype_bits(dtype) / 8;
    CHECK((static_cast<size_t>(i) + 1) * size <= data.size()) << "a scale outside its tensor";
    float value = 0;
    convert_elements(dtype, data.data() + i * size, DType::kF32, &value, 1);
    return value;
}

// Element i of packed integers of 4 or 8 bits; the lower half of a byte comes first.
int integer_at(std::span<const std::byte> data, int64_t i, int bits, bool is_signed) {
    const size_t byte = bits == 4 ? i / 2 : i;
    CHECK(byte < data.size()) << "a quantised element outside its tensor";
    int raw = std::to_integer<int>(data[byte]);
    if (bits == 4) raw = (i % 2 == 0 ? raw : raw >> 4) & 15;
    if (!is_signed) return raw;
    return bits == 4 ? (raw ^ 8) - 8 : static_cast<int8_t>(raw);
}

// Positions of one weight's elements, scales and zero points in their tensors.
struct Indexing {
    const Weight& weight;
    int64_t rows, columns;  // of the logical source
    int64_t blocks;         // along the block axis, for one position of the other

    explicit Indexing(const Weight& w) : weight(w) {
        const std::vector<int64_t>& s = w.source_shape;
        CHECK(s.size() == 2) << w.name << ": quantised weights are matrices";
        rows = w.transposed ? s[1] : s[0];
        columns = w.transposed ? s[0] : s[1];
        const Quantization& q = w.quantization;
        blocks = q.block > 0 ? (columns + q.block - 1) / q.block : 1;
    }
    int64_t block_of(int64_t column) const {
        return weight.quantization.block > 0 ? column / weight.quantization.block : 0;
    }
    int64_t element(int64_t row, int64_t column) const {
        if (weight.packing == Packing::kMatMulNBits)
            return row * blocks * weight.quantization.block + column;
        return weight.transposed ? column * rows + row : row * columns + column;
    }
    int64_t scale(int64_t row, int64_t column) const {
        if (weight.quantization.scale_count == 1) return 0;
        int64_t b = block_of(column);
        return weight.quantization.scales_transposed ? b * rows + row : row * blocks + b;
    }
    // MatMulNBits packs the zero points of a row into whole bytes.
    int64_t zero_point(int64_t row, int64_t column) const {
        const Quantization& q = weight.quantization;
        if (weight.packing != Packing::kMatMulNBits || dtype_bits(q.zero_point_dtype) != 4)
            return scale(row, column);
        return row * ((blocks + 1) / 2 * 2) + block_of(column);
    }
};

}  // namespace

void dequantize(const WeightReader& reader, const Weight& weight, Range rows, Range columns,
                DType to, std::span<std::byte> destination) {
    const Quantization& q = weight.quantization;
    const Indexing at(weight);
    const auto data = reader.bytes(weight.data);
    const auto scales = reader.bytes(q.scales);
    const bool has_zero = q.zero_points.has_data();
    const auto zeros = has_zero ? reader.bytes(q.zero_points) : std::span<const std::byte>();
    const int64_t row0 = weight.rows.empty() ? 0 : weight.rows.begin;
    const int64_t column0 = weight.columns.empty() ? 0 : weight.columns.begin;
    const bool centred = weight.packing == Packing::kMatMulNBits && !q.is_signed;
    const float middle = centred ? static_cast<float>(1 << (q.bits - 1)) : 0.0f;
    const bool f8 = weight.dtype == DType::kF8E4M3;

    std::vector<float> line(columns.size());
    const size_t line_bytes = dtype_bytes(to, columns.size());
    for (int64_t r = rows.begin; r < rows.end; ++r) {
        for (int64_t c = columns.begin; c < columns.end; ++c) {
            const int64_t row = row0 + r, column = column0 + c;
            float zero = middle;
            if (has_zero && is_floating(q.zero_point_dtype))
                zero = floating_at(zeros, q.zero_point_dtype, at.zero_point(row, column));
            else if (has_zero)
                zero = static_cast<float>(integer_at(zeros, at.zero_point(row, column),
                                                     dtype_bits(q.zero_point_dtype), q.is_signed));
            const int64_t e = at.element(row, column);
            float value = f8 ? floating_at(data, DType::kF8E4M3, e)
                             : static_cast<float>(integer_at(data, e, q.bits, q.is_signed)) - zero;
            line[c - columns.begin] =
                value * floating_at(scales, q.scale_dtype, at.scale(row, column));
        }
        convert_elements(DType::kF32, line.data(), to,
                         destination.data() + (r - rows.begin) * line_bytes, columns.size());
    }
}

}  // namespace cleave::importer
