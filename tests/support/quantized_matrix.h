// SPDX-License-Identifier: Apache-2.0
// A random quantised matrix as an exporter would store it, in a Graph of its own, and its values by
// the ONNX formula in double, written here without the project's own reading of it.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "importer/weights/quantized_shard.h"
#include "importer/weights/weight_reader.h"
#include "runtime/base/convert.h"

namespace cleave::test {

enum class Zeros : uint8_t { kNone, kInteger, kFloating };

struct QuantizedCase {
    importer::Packing packing = importer::Packing::kMatMulNBits;
    DType code = DType::kUInt4;  // int4, uint4, int8, uint8, f8e4m3 or mxfp4
    int64_t rows = 8, columns = 64;
    int64_t block = 32;  // 0: one scale a row
    DType scale = DType::kF32;
    Zeros zeros = Zeros::kNone;
    bool transposed = false;  // stored [columns, rows], as DequantizeLinear before MatMul has it
    bool one_scale = false;
    bool dynamic = false;
};

inline std::string describe(const QuantizedCase& c) {
    return std::string(c.packing == importer::Packing::kMatMulNBits ? "MatMulNBits "
                                                                    : "DequantizeLinear ") +
           std::string(dtype_name(c.code)) + " " + std::to_string(c.rows) + " x " +
           std::to_string(c.columns) + " block " + std::to_string(c.block) + " scale " +
           std::string(dtype_name(c.scale)) + " zeros " +
           std::to_string(static_cast<int>(c.zeros)) + (c.transposed ? " transposed" : "") +
           (c.one_scale ? " one scale" : "") + (c.dynamic ? " dynamic" : "");
}

struct QuantizedMatrix {
    importer::Graph graph;       // its weight 0
    std::vector<double> values;  // [rows, columns]
    std::vector<int> integers;   // code - zero point, where that is one; [rows, columns]
    std::vector<double> scales;  // of each element

    const importer::Weight& weight() const { return graph.weights[0]; }
};

namespace detail {

inline void put(std::vector<std::byte>& bytes, int64_t i, int bits, int raw) {
    if (bits == 8) {
        bytes[static_cast<size_t>(i)] = static_cast<std::byte>(raw);
        return;
    }
    bytes[static_cast<size_t>(i / 2)] |= static_cast<std::byte>((raw & 15) << (i % 2 == 0 ? 0 : 4));
}

inline double put_float(std::vector<std::byte>& bytes, int64_t i, DType dtype, float value) {
    const size_t size = static_cast<size_t>(dtype_bits(dtype)) / 8;
    convert_elements(DType::kF32, &value, dtype, bytes.data() + static_cast<size_t>(i) * size, 1);
    float stored = 0;
    convert_elements(dtype, bytes.data() + static_cast<size_t>(i) * size, DType::kF32, &stored, 1);
    return stored;
}

inline importer::DataRef keep(importer::Graph& graph, std::vector<std::byte> bytes) {
    importer::DataRef ref;
    ref.blob = importer::BlobId(graph.blobs.size());
    ref.length = bytes.size();
    graph.blobs.push_back(std::move(bytes));
    return ref;
}

// What the case says of its weight, without numbers.
inline importer::Weight weight_of(const QuantizedCase& c) {
    importer::Weight w;
    w.name = "w";
    w.shape = {c.rows, c.columns};
    w.dtype = c.code;
    w.packing = c.packing;
    w.source_shape = c.transposed ? std::vector<int64_t>{c.columns, c.rows} : w.shape;
    w.transposed = c.transposed;
    w.rows = {0, c.rows};
    w.columns = {0, c.columns};
    importer::Quantization& q = w.quantization;
    q.block = c.block;
    q.scale_dtype = c.scale;
    q.scales_transposed = c.transposed && c.block > 0;
    q.dynamic_activations = c.dynamic;
    q.zero_point_dtype = c.zeros == Zeros::kFloating ? c.scale : c.code;
    return w;
}

}  // namespace detail

// MXFP4 by the words of the OCP Microscaling Formats v1.0: e2m1 is (-1)^s 2^(e-1) (1 + m/2), and
// (-1)^s m/2 for e = 0.
inline double e2m1_number(int code) {
    const int exponent = code >> 1 & 3, mantissa = code & 1;
    const double magnitude =
        exponent == 0 ? mantissa * 0.5 : std::ldexp(1 + mantissa * 0.5, exponent - 1);
    return code & 8 ? -magnitude : magnitude;
}
// e8m0 is 2^(e-127); 255 is NaN.
inline double e8m0_number(int bits) { return bits == 255 ? NAN : std::ldexp(1.0, bits - 127); }

inline QuantizedMatrix random_quantized(const QuantizedCase& c, std::mt19937& rng) {
    using detail::put;
    const bool nbits = c.packing == importer::Packing::kMatMulNBits;
    const bool f8 = c.code == DType::kF8E4M3, mxfp4 = c.code == DType::kMxfp4;
    const bool is_signed = c.code == DType::kInt4 || c.code == DType::kInt8;
    const int bits = dtype_bits(c.code);
    const int64_t blocks = c.block > 0 ? (c.columns + c.block - 1) / c.block : 1;
    const int64_t row_codes = nbits ? blocks * c.block : c.columns;
    const int64_t zero_row = nbits && bits == 4 ? (blocks + 1) / 2 * 2 : blocks;
    const int64_t num_scales = c.one_scale ? 1 : c.rows * blocks;
    std::vector<std::byte> codes(static_cast<size_t>((c.rows * row_codes * bits + 7) / 8)),
        scales(static_cast<size_t>(num_scales * dtype_bits(c.scale) / 8)), zeros;
    if (c.zeros == Zeros::kInteger)
        zeros.resize(static_cast<size_t>(((c.one_scale ? 1 : c.rows * zero_row) * bits + 7) / 8));
    if (c.zeros == Zeros::kFloating) zeros.resize(scales.size());

    const auto draw = [&](int low, int high) {
        return std::uniform_int_distribution<int>(low, high)(rng);
    };
    const int least = is_signed ? -(1 << (bits - 1)) : 0, most = least + (1 << bits) - 1;
    std::vector<double> scale_of(static_cast<size_t>(c.rows * blocks)), zero_of(scale_of.size());
    for (int64_t r = 0; r < c.rows; ++r)
        for (int64_t b = 0; b < blocks; ++b) {
            const auto at = static_cast<size_t>(r * blocks + b);
            const bool first = r + b == 0;
            if (c.one_scale && !first) {
                scale_of[at] = scale_of[0], zero_of[at] = zero_of[0];
                continue;
            }
            const int64_t i = c.transposed && c.block > 0 ? b * c.rows + r : r * blocks + b;
            float scale = static_cast<float>(draw(50, 150)) * (bits == 4 ? 1e-3f
                                                               : f8      ? 5e-5f
                                                                         : 1e-4f);
            if (mxfp4) scale = std::ldexp(1.0f, draw(-6, -3));
            scale_of[at] = detail::put_float(scales, i, c.scale, scale);
            zero_of[at] = nbits ? 1 << (bits - 1) : 0;
            if (c.zeros == Zeros::kInteger) {
                const int zero = f8 ? 0 : draw(least, most);
                put(zeros, nbits ? r * zero_row + b : i, bits, zero);
                zero_of[at] = zero;
            }
            if (c.zeros == Zeros::kFloating)
                zero_of[at] = detail::put_float(zeros, i, c.scale,
                                                static_cast<float>(draw(0, 4 * most)) * 0.25f);
        }

    QuantizedMatrix m;
    for (int64_t r = 0; r < c.rows; ++r)
        for (int64_t k = 0; k < c.columns; ++k) {
            const auto block = static_cast<size_t>(r * blocks + (c.block > 0 ? k / c.block : 0));
            int code = draw(least, most);
            if (f8 && (code & 0x7f) == 0x7f) code ^= 1;  // no NaN
            put(codes, c.transposed ? k * c.rows + r : r * row_codes + k, bits, code);
            const double number =
                f8      ? static_cast<double>(f8e4m3_to_f32(static_cast<uint8_t>(code)))
                : mxfp4 ? e2m1_number(code)
                        : code;
            m.values.push_back((number - zero_of[block]) * scale_of[block]);
            m.integers.push_back(static_cast<int>(number - zero_of[block]));
            m.scales.push_back(scale_of[block]);
        }

    importer::Weight w = detail::weight_of(c);
    w.data = detail::keep(m.graph, codes);
    importer::Quantization& q = w.quantization;
    q.scales = detail::keep(m.graph, scales);
    q.scale_count = num_scales;
    if (c.zeros != Zeros::kNone) q.zero_points = detail::keep(m.graph, zeros);
    m.graph.weights.push_back(std::move(w));
    return m;
}

// Rows x columns as a device gets them.
inline std::vector<std::byte> device_bytes(const QuantizedMatrix& m, importer::Range rows,
                                           importer::Range columns) {
    const auto format = importer::quantized_format(m.weight());
    const auto l = importer::quantized_layout(format, rows.size(), columns.size());
    std::vector<std::byte> buffer(static_cast<size_t>(l.bytes));
    const std::span<std::byte> all(buffer);
    const auto part = [&](int64_t offset, int64_t row_bytes) {
        return row_bytes == 0 ? std::span<std::byte>()
                              : all.subspan(static_cast<size_t>(offset),
                                            static_cast<size_t>(rows.size() * row_bytes));
    };
    importer::WeightReader(m.graph).read_quantized(
        importer::WeightId(0), rows, columns,
        {part(0, l.row_bytes), part(l.scales_offset, l.scale_row_bytes),
         part(l.zeros_offset, l.zero_row_bytes)});
    return buffer;
}

// Every scale (a row each) with every code, [256, 32].
inline QuantizedMatrix all_of_mxfp4() {
    QuantizedMatrix m;
    std::vector<std::byte> codes(256 * 16), scales(256);
    for (int r = 0; r < 256; ++r) {
        scales[static_cast<size_t>(r)] = static_cast<std::byte>(r);
        for (int k = 0; k < 32; ++k) {
            detail::put(codes, r * 32 + k, 4, k % 16);
            m.values.push_back(e2m1_number(k % 16) * e8m0_number(r));
        }
    }
    importer::Weight w;
    w.name = "w";
    w.shape = w.source_shape = {256, 32};
    w.dtype = DType::kMxfp4;
    w.packing = importer::Packing::kDequantizeLinear;
    w.rows = {0, 256};
    w.columns = {0, 32};
    w.data = detail::keep(m.graph, codes);
    w.quantization.block = 32;
    w.quantization.scale_dtype = DType::kF8E8M0;
    w.quantization.scales = detail::keep(m.graph, scales);
    w.quantization.scale_count = 256;
    m.graph.weights.push_back(std::move(w));
    return m;
}

// The forms that importers give: every packing with its code types, scales, zero points and odd
// sizes.
inline std::vector<QuantizedCase> quantized_cases() {
    using importer::Packing;
    std::vector<QuantizedCase> cases;
    for (int64_t block : {16, 32, 64, 128})
        for (Zeros zeros : {Zeros::kNone, Zeros::kInteger, Zeros::kFloating})
            cases.push_back({Packing::kMatMulNBits, DType::kUInt4, 9, block == 64 ? 192 : 100,
                             block, block == 32 ? DType::kF16 : DType::kF32, zeros});
    for (Zeros zeros : {Zeros::kNone, Zeros::kInteger, Zeros::kFloating})
        cases.push_back({Packing::kMatMulNBits, DType::kUInt8, 9, 72, 32, DType::kBF16, zeros});
    for (DType code : {DType::kInt4, DType::kUInt4, DType::kInt8, DType::kUInt8, DType::kF8E4M3})
        for (bool transposed : {false, true})
            for (int64_t block : {0, 32, 24}) {
                const bool zeros = code != DType::kF8E4M3 && (block == 32) != transposed;
                cases.push_back({Packing::kDequantizeLinear, code, 10, 80, block,
                                 transposed ? DType::kF16 : DType::kF32,
                                 zeros ? Zeros::kInteger : Zeros::kNone, transposed});
            }
    for (bool transposed : {false, true})
        cases.push_back({Packing::kDequantizeLinear, DType::kMxfp4, 10, 80, 32, DType::kF8E8M0,
                         Zeros::kNone, transposed});
    for (DType code : {DType::kInt8, DType::kF8E4M3})
        cases.push_back(
            {Packing::kDequantizeLinear, code, 6, 33, 0, DType::kF32, Zeros::kNone, false, true});
    cases.push_back({Packing::kDequantizeLinear, DType::kUInt8, 6, 33, 0, DType::kF32,
                     Zeros::kInteger, true, true});
    return cases;
}

}  // namespace cleave::test
