// SPDX-License-Identifier: Apache-2.0
#include "importer/weights/dequantize.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "importer/weights/gguf_blocks.h"
#include "importer/weights/read_transposed.h"
#include "importer/weights/round_weights.h"
#include "importer/weights/weight_reader.h"
#include "runtime/base/convert.h"
#include "runtime/base/errors.h"

namespace cleave::importer {
namespace {

// Positions of one weight's elements, scales and zero points in their tensors, and their values.
// Rows and columns are those of the weight, which may itself be a part of its source.
class Source {
public:
    Source(const WeightReader& reader, const Weight& weight)
        : weight_(weight),
          q_(weight.quantization),
          type_(quantized_type(weight.dtype)),
          bits_(type_.bits()),
          format_(quantized_format(weight)),
          data_(reader.bytes(weight.data)),
          scales_(reader.bytes(q_.scales)) {
        const std::vector<int64_t>& s = weight.source_shape;
        CLEAVE_CHECK(s.size() == 2) << weight.name << ": quantised weights are matrices";
        if (q_.scale_rows < 1) throw UserError("{}: scales of {} rows", weight.name, q_.scale_rows);
        source_rows_ = weight.transposed ? s[1] : s[0];
        source_columns_ = weight.transposed ? s[0] : s[1];
        blocks_ = q_.block > 0 ? (source_columns_ + q_.block - 1) / q_.block : 1;
        row0_ = weight.rows.empty() ? 0 : weight.rows.begin;
        column0_ = weight.columns.empty() ? 0 : weight.columns.begin;
        if (format_.zero_points == ZeroPoints::kConstant) return;
        zeros_ = reader.bytes(q_.zero_points);
        zero_bits_ = dtype_bits(q_.zero_point_dtype);
        one_zero_ = zeros_.size() * 8 <= static_cast<size_t>(std::max(zero_bits_, 8)) &&
                    source_rows_ * blocks_ > 1 && zero_bits_ >= 8;
    }

    const QuantizedFormat& format() const { return format_; }

    // As the format has it: unsigned integers, or the bits of a float8.
    int code(int64_t row, int64_t column) const {
        return bits_at(data_, element(row0_ + row, column0_ + column), bits_, "code") ^ flip();
    }
    // The bytes of a row's codes from `column` on, where they are contiguous whole bytes.
    std::span<const std::byte> run(int64_t row, int64_t column, int64_t count) const {
        if (is_in_words()) return {};
        if (weight_.packing != Packing::kMatMulNBits && weight_.transposed) return {};
        const int64_t first = element(row0_ + row, column0_ + column);
        if (first * bits_ % 8 != 0) return {};
        const size_t begin = first * bits_ / 8, size = count * bits_ / 8;
        require_inside(begin + size <= data_.size(), "row");
        return data_.subspan(begin, size);
    }
    // Whether codes are whole bytes, contiguous along the columns of the source, not its rows.
    bool has_transposed_bytes() const {
        return weight_.packing != Packing::kMatMulNBits && weight_.transposed && bits_ == 8;
    }
    // Of such: the bytes of rows x columns, row major.
    void read_bytes(Range rows, Range columns, std::byte* to) const {
        const Range r{row0_ + rows.begin, row0_ + rows.end};
        const Range c{column0_ + columns.begin, column0_ + columns.end};
        require_inside(r.end <= source_rows_ &&
                           (c.end - 1) * source_rows_ + r.end <= static_cast<int64_t>(data_.size()),
                       "row");
        read_transposed(data_.data(), source_rows_, r, c, DType::kUInt8, DType::kUInt8, to);
    }
    int flip() const { return type_.is_signed() ? type_.middle : 0; }
    float scale(int64_t row, int64_t column) const {
        return floating_at(scales_, q_.scale_dtype, scale_index(row0_ + row, column0_ + column),
                           "scale");
    }
    const std::byte* scale_bytes(int64_t row, int64_t column) const {
        const size_t size = dtype_bits(q_.scale_dtype) / 8;
        const size_t at = scale_index(row0_ + row, column0_ + column) * size;
        require_inside(at + size <= scales_.size(), "scale");
        return scales_.data() + at;
    }
    // Only where the format has integer zero points.
    int zero_code(int64_t row, int64_t column) const {
        const int code =
            bits_at(zeros_, zero_index(row0_ + row, column0_ + column), zero_bits_, "zero point");
        return ((code + q_.zero_offset) & ((1 << bits_) - 1)) ^ flip();
    }
    const std::byte* zero_bytes(int64_t row, int64_t column) const {
        const size_t size = zero_bits_ / 8;
        const size_t at = zero_index(row0_ + row, column0_ + column) * size;
        require_inside(at + size <= zeros_.size(), "zero point");
        return zeros_.data() + at;
    }
    float zero(int64_t row, int64_t column) const {
        switch (format_.zero_points) {
            case ZeroPoints::kConstant: return static_cast<float>(format_.constant_zero);
            case ZeroPoints::kInteger: return static_cast<float>(zero_code(row, column));
            case ZeroPoints::kFloating:
                return floating_at(zeros_, q_.zero_point_dtype,
                                   zero_index(row0_ + row, column0_ + column), "zero point");
        }
        return 0;
    }
    float value(int64_t row, int64_t column) const {
        return (type_.value(code(row, column)) - zero(row, column)) * scale(row, column);
    }
    // A rectangle that a device holds may not begin within a block.
    void check_whole_blocks(Range columns) const {
        CLEAVE_CHECK(q_.block == 0 || columns.begin % q_.block == 0)
            << weight_.name << ": column " << columns.begin << " lies within a block";
        if (q_.block > 0 && column0_ % q_.block != 0)
            throw UserError(
                "{}: this part of its initializer begins at column {}, within a quantisation block "
                "of {}; export it unfused, or convert with $dtype f32, f16 or bf16",
                weight_.name, column0_, q_.block);
    }

private:
    void require_inside(bool inside, std::string_view what) const {
        if (!inside) refuse_outside(weight_, what);
    }
    float floating_at(std::span<const std::byte> data, DType dtype, int64_t i,
                      std::string_view what) const {
        const size_t size = dtype_bits(dtype) / 8;
        require_inside((static_cast<size_t>(i) + 1) * size <= data.size(), what);
        float value = 0;
        convert_elements(dtype, data.data() + i * size, DType::kF32, &value, 1);
        return value;
    }
    // Element i of packed integers of 4 or 8 bits, as its bits; the lower half of a byte comes
    // first.
    int bits_at(std::span<const std::byte> data, int64_t i, int bits, std::string_view what) const {
        const size_t byte = bits == 4 ? i / 2 : i;
        require_inside(byte < data.size(), what);
        const int raw = std::to_integer<int>(data[byte]);
        return bits == 4 ? (i % 2 == 0 ? raw : raw >> 4) & 15 : raw;
    }
    bool is_in_words() const {
        return weight_.packing == Packing::kGptq || weight_.packing == Packing::kAwq;
    }
    // Of [in, out] codes of 4 bits, eight outputs a word: AWQ has the even ones first.
    int64_t awq_index(int64_t input, int64_t output) const {
        constexpr std::array<int64_t, 8> kPlaces{0, 4, 1, 5, 2, 6, 3, 7};
        return input * source_rows_ + output / 8 * 8 + kPlaces[static_cast<size_t>(output % 8)];
    }
    // Of codes [i, j] whose words hold consecutive i, in rows of `width` words.
    int64_t index_in_words(int64_t i, int64_t j, int64_t width) const {
        const int64_t codes = 32 / bits_;
        return (i / codes * width + j) * codes + i % codes;
    }
    int64_t block_of(int64_t column) const { return q_.block > 0 ? column / q_.block : 0; }
    int64_t element(int64_t row, int64_t column) const {
        if (weight_.packing == Packing::kMatMulNBits && q_.block > 0)
            return row * blocks_ * q_.block + column;
        if (weight_.packing == Packing::kAwq) return awq_index(column, row);
        if (weight_.packing == Packing::kGptq) return index_in_words(column, row, source_rows_);
        return weight_.transposed ? column * source_rows_ + row : row * source_columns_ + column;
    }
    int64_t scale_index(int64_t row, int64_t column) const {
        if (q_.scale_count == 1) return 0;
        const int64_t b = block_of(column);
        return q_.scales_transposed ? b * source_rows_ + row : row / q_.scale_rows * blocks_ + b;
    }
    // MatMulNBits packs the zero points of a row into whole bytes; a product of integers may have
    // one for all.
    int64_t zero_index(int64_t row, int64_t column) const {
        if (one_zero_) return 0;
        if (weight_.packing == Packing::kAwq) return awq_index(block_of(column), row);
        if (q_.zero_points_in_words) return index_in_words(row, block_of(column), blocks_);
        if (weight_.packing == Packing::kMatMulNBits && zero_bits_ == 4)
            return row * ((blocks_ + 1) / 2 * 2) + block_of(column);
        if (q_.scale_count == 1 &&
            static_cast<int64_t>(zeros_.size()) * 8 >= source_rows_ * blocks_ * zero_bits_)
            return row * blocks_ + block_of(column);
        return scale_index(row, column);
    }

    const Weight& weight_;
    const Quantization& q_;
    const QuantizedType& type_;
    const int bits_;
    QuantizedFormat format_;
    std::span<const std::byte> data_, scales_, zeros_;
    int zero_bits_ = 0;
    bool one_zero_ = false;
    int64_t source_rows_ = 0, source_columns_ = 0, blocks_ = 1, row0_ = 0, column0_ = 0;
};

// Whole groups of 32 elements, two a byte in their order, become groups of the device's order.
void interleave_groups(const std::byte* from, int64_t groups, std::byte flip, std::byte* to) {
    constexpr std::byte kLow{0x0f}, kHigh{0xf0};
    for (int64_t g = 0; g < groups; ++g, from += 16, to += 16)
        for (int k = 0; k < 8; ++k) {
            const std::byte a = from[k] ^ flip, b = from[8 + k] ^ flip;
            to[2 * k] = (a & kLow) | (b << 4);
            to[2 * k + 1] = (a >> 4) | (b & kHigh);
        }
}

// Codes of a row in the device's order.
void write_codes(const Source& source, int64_t row, Range columns, std::byte* to) {
    const bool four = dtype_bits(source.format().code) == 4;
    int64_t begin = 0;
    const int64_t groups = columns.size() / kCodeGroup;
    const auto run = source.run(row, columns.begin, groups * kCodeGroup);
    if (!run.empty()) {
        begin = groups * kCodeGroup;
        const auto flip = static_cast<std::byte>(source.flip());
        if (four)
            interleave_groups(run.data(), groups, flip | (flip << 4), to);
        else
            std::transform(run.begin(), run.end(), to, [&](std::byte b) { return b ^ flip; });
    }
    for (int64_t i = begin; i < columns.size(); ++i) {
        const auto code = static_cast<std::byte>(source.code(row, columns.begin + i));
        if (!four)
            to[i] = code;
        else
            put_four_bits(to, i, code);
    }
}

// The same of all rows of a source that has transposed bytes, a tile's at a time.
void write_transposed_codes(const Source& source, Range rows, Range columns, int64_t row_bytes,
                            std::byte* to) {
    constexpr int64_t kRows = kTransposedTileRows;
    const int64_t width = columns.size();
    const auto flip = static_cast<std::byte>(source.flip());
    std::vector<std::byte> strip(static_cast<size_t>(kRows * width));
    for (int64_t row = rows.begin; row < rows.end; row += kRows) {
        const Range part{row, std::min(rows.end, row + kRows)};
        source.read_bytes(part, columns, strip.data());
        for (int64_t r = 0; r < part.size(); ++r, to += row_bytes)
            std::transform(strip.data() + r * width, strip.data() + (r + 1) * width, to,
                           [&](std::byte b) { return b ^ flip; });
    }
}

void write_zeros(const Source& source, int64_t row, Range columns, int64_t blocks, std::byte* to) {
    const QuantizedFormat& f = source.format();
    const size_t size = dtype_bits(f.zero_point) / 8;
    for (int64_t b = 0; b < blocks; ++b) {
        const int64_t column = columns.begin + b * f.block;
        if (f.zero_points == ZeroPoints::kFloating) {
            std::memcpy(to + b * size, source.zero_bytes(row, column), size);
            continue;
        }
        const auto code = static_cast<std::byte>(source.zero_code(row, column));
        if (dtype_bits(f.code) == 4)
            to[b / 2] |= b % 2 == 0 ? code : code << 4;
        else
            to[b] = code;
    }
}

}  // namespace

void dequantize(const WeightReader& reader, const Weight& weight, Range rows, Range columns,
                DType to, std::span<std::byte> destination) {
    if (weight.quantization.rounded_from)
        return expand_rounded(reader, weight, rows, columns, to, destination);
    if (weight.gguf) return expand_gguf(reader, weight, rows, columns, to, destination);
    const Source source(reader, weight);
    std::vector<float> line(columns.size());
    const size_t line_bytes = dtype_bytes(to, columns.size());
    for (int64_t r = rows.begin; r < rows.end; ++r) {
        for (int64_t c = columns.begin; c < columns.end; ++c)
            line[c - columns.begin] = source.value(r, c);
        convert_elements(DType::kF32, line.data(), to,
                         destination.data() + (r - rows.begin) * line_bytes, columns.size());
    }
}

void pack_quantized(const WeightReader& reader, const Weight& weight, Range rows, Range columns,
                    const QuantizedParts& parts) {
    const QuantizedFormat f = quantized_format(weight);
    const QuantizedLayout l = quantized_layout(f, rows.size(), columns.size());
    const auto holds = [&](std::span<std::byte> part, int64_t row_bytes) {
        return static_cast<int64_t>(part.size()) == rows.size() * row_bytes;
    };
    CLEAVE_CHECK(holds(parts.codes, l.row_bytes) && holds(parts.scales, l.scale_row_bytes) &&
                 holds(parts.zero_points, l.zero_row_bytes))
        << weight.name << ": the destination has another size than the rectangle";
    if (weight.quantization.rounded_from) return pack_rounded(reader, weight, rows, columns, parts);
    if (weight.gguf) return pack_gguf(reader, weight, rows, columns, parts);
    const Source source(reader, weight);
    source.check_whole_blocks(columns);
    std::fill(parts.codes.begin(), parts.codes.end(), std::byte{0});
    std::fill(parts.zero_points.begin(), parts.zero_points.end(), std::byte{0});
    const size_t scale_size = dtype_bits(f.scale) / 8;
    const bool by_tiles = source.has_transposed_bytes();
    if (by_tiles) write_transposed_codes(source, rows, columns, l.row_bytes, parts.codes.data());
    for (int64_t r = 0; r < rows.size(); ++r) {
        const int64_t row = rows.begin + r;
        if (!by_tiles) write_codes(source, row, columns, parts.codes.data() + r * l.row_bytes);
        for (int64_t b = 0; b < l.blocks; ++b)
            std::memcpy(parts.scales.data() + r * l.scale_row_bytes + b * scale_size,
                        source.scale_bytes(row, columns.begin + b * f.block), scale_size);
        if (l.zero_row_bytes > 0)
            write_zeros(source, row, columns, l.blocks,
                        parts.zero_points.data() + r * l.zero_row_bytes);
    }
}

}  // namespace cleave::importer
