// SPDX-License-Identifier: Apache-2.0
#include "importer/weights/gguf_blocks.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "importer/weights/weight_reader.h"
#include "runtime/base/convert.h"
#include "runtime/base/errors.h"

namespace cleave::importer {
namespace {

using Byte = unsigned char;

float f16_at(const Byte* p) {
    float value = 0;
    convert_elements(DType::kF16, p, DType::kF32, &value, 1);
    return value;
}

// ---- Blocks of 32: f16 scale, then what follows

void expand_q40(const Byte* p, float* to) {
    const float scale = f16_at(p);
    for (int j = 0; j < 16; ++j) {
        to[j] = static_cast<float>((p[2 + j] & 15) - 8) * scale;
        to[16 + j] = static_cast<float>((p[2 + j] >> 4) - 8) * scale;
    }
}

void expand_q41(const Byte* p, float* to) {
    const float scale = f16_at(p), least = f16_at(p + 2);
    for (int j = 0; j < 16; ++j) {
        to[j] = static_cast<float>(p[4 + j] & 15) * scale + least;
        to[16 + j] = static_cast<float>(p[4 + j] >> 4) * scale + least;
    }
}

// The fifth bits of 32 codes; the other four as Q4_0 has them.
int five_bits(const Byte* high, const Byte* low, int j) {
    const int bit = (high[j / 8] >> (j % 8)) & 1;
    return (j < 16 ? low[j] & 15 : low[j - 16] >> 4) | (bit << 4);
}

void expand_q50(const Byte* p, float* to) {
    const float scale = f16_at(p);
    for (int j = 0; j < 32; ++j)
        to[j] = static_cast<float>(five_bits(p + 2, p + 6, j) - 16) * scale;
}

void expand_q51(const Byte* p, float* to) {
    const float scale = f16_at(p), least = f16_at(p + 2);
    for (int j = 0; j < 32; ++j)
        to[j] = static_cast<float>(five_bits(p + 4, p + 8, j)) * scale + least;
}

void expand_q80(const Byte* p, float* to) {
    const float scale = f16_at(p);
    for (int j = 0; j < 32; ++j)
        to[j] = static_cast<float>(static_cast<signed char>(p[2 + j])) * scale;
}

// ---- Blocks of 256, in parts with scales of their own

// Scales of 4 bits and smallest values of 4, 16 codes of 2 bits each.
void expand_q2k(const Byte* p, float* to) {
    const Byte *scales = p, *codes = p + 16;
    const float scale = f16_at(p + 80), least = f16_at(p + 82);
    for (int half = 0; half < 2; ++half, codes += 32)
        for (int shift = 0; shift < 8; shift += 2)
            for (int part = 0; part < 2; ++part, ++scales) {
                const float s = scale * static_cast<float>(*scales & 15);
                const float l = least * static_cast<float>(*scales >> 4);
                for (int i = 0; i < 16; ++i)
                    *to++ = s * static_cast<float>((codes[part * 16 + i] >> shift) & 3) - l;
            }
}

// Scales of 6 bits: the lower four of two in a byte, the upper two of four in a byte.
int q3_scale(const Byte* scales, int i) {
    const int low = i < 8 ? scales[i] & 15 : scales[i - 8] >> 4;
    return (low | ((scales[8 + i % 4] >> (2 * (i / 4))) & 3) << 4) - 32;
}

void expand_q3k(const Byte* p, float* to) {
    const Byte *high = p, *codes = p + 32, *scales = p + 96;
    const float scale = f16_at(p + 108);
    int part = 0;
    for (int half = 0; half < 2; ++half, codes += 32)
        for (int shift = 0; shift < 4; ++shift)
            for (int quarter = 0; quarter < 2; ++quarter, ++part) {
                const float s = scale * static_cast<float>(q3_scale(scales, part));
                for (int i = quarter * 16; i < quarter * 16 + 16; ++i) {
                    const bool bit = (high[i] >> (half * 4 + shift)) & 1;
                    *to++ = s * static_cast<float>(((codes[i] >> (2 * shift)) & 3) - (bit ? 0 : 4));
                }
            }
}

struct ScaleAndLeast {
    int scale, least;  // 6 bits each
};

// Of the eight pairs in 12 bytes.
ScaleAndLeast pair_of(const Byte* p, int i) {
    if (i < 4) return {p[i] & 63, p[i + 4] & 63};
    return {(p[i + 4] & 15) | (p[i - 4] >> 6) << 4, (p[i + 4] >> 4) | (p[i] >> 6) << 4};
}

// Q4_K; with `high`, a fifth bit of each code, Q5_K.
void expand_q4_or_q5_k(const Byte* p, const Byte* high, const Byte* codes, float* to) {
    const float scale = f16_at(p), least = f16_at(p + 2);
    for (int part = 0; part < 8; ++part) {
        const ScaleAndLeast pair = pair_of(p + 4, part);
        const float s = scale * static_cast<float>(pair.scale);
        const float l = least * static_cast<float>(pair.least);
        const Byte* low = codes + part / 2 * 32;
        for (int i = 0; i < 32; ++i) {
            const int code = part % 2 == 0 ? low[i] & 15 : low[i] >> 4;
            const int bit = high ? (high[i] >> part) & 1 : 0;
            *to++ = s * static_cast<float>(code | bit << 4) - l;
        }
    }
}

void expand_q4k(const Byte* p, float* to) { expand_q4_or_q5_k(p, nullptr, p + 16, to); }
void expand_q5k(const Byte* p, float* to) { expand_q4_or_q5_k(p, p + 16, p + 48, to); }

void expand_q6k(const Byte* p, float* to) {
    const Byte *low = p, *high = p + 128, *scales = p + 192;
    const float scale = f16_at(p + 208);
    for (int half = 0; half < 2; ++half, low += 64, high += 32, scales += 8)
        for (int quarter = 0; quarter < 4; ++quarter)
            for (int i = 0; i < 32; ++i) {
                const Byte four = low[quarter % 2 * 32 + i];
                const int code =
                    (quarter < 2 ? four & 15 : four >> 4) | ((high[i] >> (2 * quarter)) & 3) << 4;
                const auto s = static_cast<signed char>(scales[quarter * 2 + i / 16]);
                *to++ = scale * static_cast<float>(s) * static_cast<float>(code - 32);
            }
}

void expand_block(GgufType type, const Byte* p, float* to) {
    switch (type) {
        case GgufType::kQ40: return expand_q40(p, to);
        case GgufType::kQ41: return expand_q41(p, to);
        case GgufType::kQ50: return expand_q50(p, to);
        case GgufType::kQ51: return expand_q51(p, to);
        case GgufType::kQ80: return expand_q80(p, to);
        case GgufType::kQ2K: return expand_q2k(p, to);
        case GgufType::kQ3K: return expand_q3k(p, to);
        case GgufType::kQ4K: return expand_q4k(p, to);
        case GgufType::kQ5K: return expand_q5k(p, to);
        case GgufType::kQ6K: return expand_q6k(p, to);
        case GgufType::kF32:
        case GgufType::kF16:
        case GgufType::kBF16: break;
    }
    CLEAVE_CHECK(false) << gguf_layout(type).name << ": not a type of blocks";
}

// ---- Rectangles

// The blocks of a weight, which may view some rows and columns of its tensor.
class Blocks {
public:
    Blocks(const WeightReader& reader, const Weight& weight)
        : weight_(weight), layout_(gguf_layout(*weight.gguf)), data_(reader.bytes(weight.data)) {
        const std::vector<int64_t>& s = weight.source_shape;
        if (s.size() != 2 || weight.transposed || s[1] % layout_.elements != 0 ||
            static_cast<int64_t>(data_.size()) != s[0] * row_bytes())
            throw UserError("{}: it is no matrix of blocks of {}, as its plan says", weight.name,
                            layout_.name);
        row0_ = weight.rows.empty() ? 0 : weight.rows.begin;
        column0_ = weight.columns.empty() ? 0 : weight.columns.begin;
    }

    const GgufLayout& layout() const { return layout_; }
    int64_t column(int64_t c) const { return column0_ + c; }  // of the tensor
    // The block that holds column `c` of the tensor.
    const Byte* at(int64_t row, int64_t c) const {
        const int64_t first = (row0_ + row) * row_bytes() + c / layout_.elements * layout_.bytes;
        if (first < 0 || first + layout_.bytes > static_cast<int64_t>(data_.size()))
            refuse_outside(weight_, "block");
        return reinterpret_cast<const Byte*>(data_.data()) + first;
    }

private:
    int64_t row_bytes() const { return weight_.source_shape[1] / layout_.elements * layout_.bytes; }

    const Weight& weight_;
    const GgufLayout& layout_;
    std::span<const std::byte> data_;
    int64_t row0_ = 0, column0_ = 0;
};

// A block of Q4_1 is (code - zero) * scale with zero = -least / scale; where the scale is 0, every
// element is `least`: of code 0, with that scale and the zero point -1.
void pack_q4_1(const Byte* block, std::byte* codes, std::byte* scale, std::byte* zero) {
    const float s = f16_at(block), least = f16_at(block + 2);
    std::memcpy(scale, s != 0 ? block : block + 2, 2);
    const float z = s != 0 ? -least / s : least != 0 ? -1.0f : 0.0f;
    std::memcpy(zero, &z, sizeof(z));
    if (s != 0)
        std::memcpy(codes, block + 4, 16);
    else
        std::memset(codes, 0, 16);
}

}  // namespace

std::optional<GgufAsQuantized> gguf_as_quantized(GgufType type) {
    if (type == GgufType::kQ80) return GgufAsQuantized{DType::kInt8, false};
    if (type == GgufType::kQ40) return GgufAsQuantized{DType::kInt4, false};
    if (type == GgufType::kQ41) return GgufAsQuantized{DType::kUInt4, true};
    return std::nullopt;
}

void expand_gguf_blocks(GgufType type, const std::byte* blocks, int64_t count, float* to) {
    const GgufLayout& layout = gguf_layout(type);
    for (int64_t b = 0; b < count; ++b)
        expand_block(type, reinterpret_cast<const Byte*>(blocks) + b * layout.bytes,
                     to + b * layout.elements);
}

void expand_gguf(const WeightReader& reader, const Weight& weight, Range rows, Range columns,
                 DType to, std::span<std::byte> destination) {
    const Blocks blocks(reader, weight);
    const int64_t elements = blocks.layout().elements;
    const int64_t begin = blocks.column(columns.begin) / elements * elements;
    const int64_t count = (blocks.column(columns.end) - begin + elements - 1) / elements;
    std::vector<float> line(static_cast<size_t>(count * elements));
    const auto row_bytes = static_cast<size_t>(dtype_bytes(to, columns.size()));
    for (int64_t r = rows.begin; r < rows.end; ++r) {
        for (int64_t b = 0; b < count; ++b)
            expand_block(*weight.gguf, blocks.at(r, begin + b * elements),
                         line.data() + b * elements);
        convert_elements(DType::kF32, line.data() + (blocks.column(columns.begin) - begin), to,
                         destination.data() + static_cast<size_t>(r - rows.begin) * row_bytes,
                         columns.size());
    }
}

void pack_gguf(const WeightReader& reader, const Weight& weight, Range rows, Range columns,
               const QuantizedParts& parts) {
    const Blocks blocks(reader, weight);
    const QuantizedLayout l =
        quantized_layout(quantized_format(weight), rows.size(), columns.size());
    CLEAVE_CHECK(blocks.layout().elements == kCodeGroup && columns.begin % kCodeGroup == 0)
        << weight.name << ": column " << columns.begin << " lies within a block";
    if (blocks.column(0) % kCodeGroup != 0)
        throw UserError(
            "{}: this part of its tensor begins within a block; convert with $dtype f32, f16 or "
            "bf16",
            weight.name);
    const bool four = dtype_bits(weight.dtype) == 4;
    const auto code_bytes = static_cast<size_t>(four ? kCodeGroup / 2 : kCodeGroup);
    for (int64_t r = 0; r < rows.size(); ++r)
        for (int64_t b = 0; b < l.blocks; ++b) {
            const Byte* block =
                blocks.at(rows.begin + r, blocks.column(columns.begin) + b * kCodeGroup);
            std::byte* codes = parts.codes.data() + r * l.row_bytes + b * code_bytes;
            std::byte* scale = parts.scales.data() + r * l.scale_row_bytes + b * 2;
            if (*weight.gguf == GgufType::kQ41) {
                pack_q4_1(block, codes, scale,
                          parts.zero_points.data() + r * l.zero_row_bytes + b * sizeof(float));
                continue;
            }
            std::memcpy(scale, block, 2);
            std::memcpy(codes, block + 2, code_bytes);
            if (!four)
                std::transform(codes, codes + code_bytes, codes,
                               [](std::byte c) { return c ^ std::byte{0x80}; });
        }
}

}  // namespace cleave::importer
