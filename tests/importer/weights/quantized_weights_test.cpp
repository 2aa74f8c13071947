// SPDX-License-Identifier: Apache-2.0
// Quantised weights as they are read: expanded by the formula of ONNX, or repacked for devices
// without a change of value, whole or in rectangles.
#include <cmath>

#include "importer/weights/quantize.h"
#include "tests/support/quantized_matrix.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using importer::Range;
using importer::WeightId;

std::vector<float> expanded(const QuantizedMatrix& m, Range rows, Range columns) {
    std::vector<float> values(static_cast<size_t>(rows.size() * columns.size()));
    importer::WeightReader(m.graph).read(WeightId(0), rows, columns, DType::kF32,
                                         std::as_writable_bytes(std::span(values)));
    return values;
}

float float_at(const std::byte* p, DType dtype) {
    float value = 0;
    convert_elements(dtype, p, DType::kF32, &value, 1);
    return value;
}

double number_of(DType type, int code) {
    return type == DType::kF8E4M3  ? f8e4m3_to_f32(static_cast<uint8_t>(code))
           : type == DType::kMxfp4 ? e2m1_number(code)
                                   : code;
}

// Element (row, column) of a rectangle in the device's layout, by the words of its header.
double element(const std::vector<std::byte>& buffer, const importer::QuantizedFormat& f,
               int64_t rows, int64_t columns, int64_t row, int64_t column) {
    const auto l = importer::quantized_layout(f, rows, columns);
    const std::byte* codes = buffer.data() + row * l.row_bytes;
    const int64_t group = column / 32, within = column % 32;
    int code = std::to_integer<int>(dtype_bits(f.code) == 4 ? codes[group * 16 + within % 16]
                                                            : codes[column]);
    if (dtype_bits(f.code) == 4) code = within < 16 ? code & 15 : code >> 4;
    const int64_t block = f.block > 0 ? column / f.block : 0;
    const std::byte* scales = buffer.data() + l.scales_offset + row * l.scale_row_bytes;
    const std::byte* zeros = buffer.data() + l.zeros_offset + row * l.zero_row_bytes;
    double zero = f.constant_zero;
    if (f.zero_points == importer::ZeroPoints::kFloating)
        zero = float_at(zeros + block * dtype_bits(f.zero_point) / 8, f.zero_point);
    if (f.zero_points == importer::ZeroPoints::kInteger) {
        const bool four = f.code == DType::kUInt4;
        const int byte = std::to_integer<int>(zeros[four ? block / 2 : block]);
        zero = four ? (block % 2 == 0 ? byte & 15 : byte >> 4) : byte;
    }
    return (number_of(f.code, code) - zero) *
           float_at(scales + block * dtype_bits(f.scale) / 8, f.scale);
}

// And some larger than a tile of what lies transposed (importer/weights/read_transposed.cpp), with
// rests, both ways.
std::vector<QuantizedCase> cases_and_large_ones() {
    std::vector<QuantizedCase> cases = quantized_cases();
    for (DType code : {DType::kInt8, DType::kUInt8, DType::kUInt4})
        cases.push_back({importer::Packing::kDequantizeLinear, code, 150, 288, 32, DType::kF16,
                         Zeros::kInteger, true});
    return cases;
}

}  // namespace

TEST_CASE("a quantised weight is expanded by the formula, whatever its packing", "[importer]") {
    std::mt19937 rng(1);
    for (const QuantizedCase& c : cases_and_large_ones()) {
        INFO(describe(c));
        const QuantizedMatrix m = random_quantized(c, rng);
        const std::vector<float> got = expanded(m, {0, c.rows}, {0, c.columns});
        for (size_t i = 0; i < got.size(); ++i)
            REQUIRE(std::fabs(got[i] - m.values[i]) <= 1e-6 * std::fabs(m.values[i]));
    }
}

TEST_CASE("a quantised weight keeps its values when it is repacked, and so do its rectangles",
          "[importer]") {
    std::mt19937 rng(2);
    for (const QuantizedCase& c : cases_and_large_ones()) {
        INFO(describe(c));
        const QuantizedMatrix m = random_quantized(c, rng);
        const auto format = importer::quantized_format(m.weight());
        const int64_t block = c.block > 0 ? c.block : 8;
        for (auto [rows, columns] : {std::pair<Range, Range>{{0, c.rows}, {0, c.columns}},
                                     {{1, c.rows - 2}, {block, c.columns}},
                                     {{2, 3}, {0, std::min(block, c.columns)}}}) {
            if (columns.empty()) continue;
            const std::vector<std::byte> buffer = device_bytes(m, rows, columns);
            for (int64_t r = 0; r < rows.size(); ++r)
                for (int64_t k = 0; k < columns.size(); ++k) {
                    const double want = m.values[static_cast<size_t>((rows.begin + r) * c.columns +
                                                                     columns.begin + k)];
                    CAPTURE(r, k);
                    REQUIRE(element(buffer, format, rows.size(), columns.size(), r, k) ==
                            Approx(want).epsilon(1e-6));
                }
        }
    }
}

TEST_CASE("quantised weights take their packed bytes, groups and parts rounded up", "[importer]") {
    std::mt19937 rng(3);
    const QuantizedMatrix m = random_quantized({importer::Packing::kMatMulNBits, DType::kUInt4, 64,
                                                4096, 32, DType::kF16, Zeros::kInteger},
                                               rng);
    const auto l = importer::quantized_layout(importer::quantized_format(m.weight()), 64, 4096);
    CHECK(l.bytes == 64 * (4096 / 2 + 128 * 2 + 128 / 2));
    CHECK(l.bytes == m.weight().packed_bytes());
}

TEST_CASE("a rectangle that begins within a quantisation block is refused", "[importer]") {
    std::mt19937 rng(4);
    QuantizedMatrix m = random_quantized({}, rng);
    CHECK_THROWS_AS(device_bytes(m, {0, 8}, {16, 64}), InternalError);
    m.graph.weights[0].columns = {16, 64};
    m.graph.weights[0].shape = {8, 48};
    CHECK_THAT(user_error([&] { device_bytes(m, {0, 8}, {0, 48}); }),
               Catch::Matchers::Contains("within a quantisation block of 32"));
}

namespace {

// A dense matrix in a blob, as the weight of one Linear.
QuantizedMatrix dense_matrix(int64_t rows, int64_t columns, bool transposed, DType dtype,
                             std::mt19937& rng) {
    QuantizedMatrix m;
    importer::Weight w;
    w.name = "w";
    w.shape = {rows, columns};
    w.source_shape = transposed ? std::vector{columns, rows} : w.shape;
    w.transposed = transposed;
    w.dtype = dtype;
    std::vector<std::byte> bytes(static_cast<size_t>(dtype_bytes(dtype, rows * columns)));
    std::normal_distribution<float> normal;
    m.values.resize(static_cast<size_t>(rows * columns));
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c) {
            // One block of zeros; rows of other sizes.
            const float x = r == 1 && c < 32 ? 0 : normal(rng) * std::pow(10.0f, float(r % 4 - 3));
            const int64_t at = transposed ? c * rows + r : r * columns + c;
            std::byte* stored = bytes.data() + at * dtype_bits(dtype) / 8;
            convert_elements(DType::kF32, &x, dtype, stored, 1);
            m.values[static_cast<size_t>(r * columns + c)] = float_at(stored, dtype);
        }
    w.data.blob = importer::BlobId(0);
    w.data.length = bytes.size();
    m.graph.blobs.push_back(std::move(bytes));
    m.graph.weights.push_back(std::move(w));
    importer::Op op;
    op.kind = importer::OpKind::kLinear;
    op.name = "linear";
    op.attrs = importer::LinearAttrs{};
    op.weights = {WeightId(0)};
    m.graph.ops.push_back(std::move(op));
    return m;
}

// The code's distance from the nearest number that the scale has.
double nearest(double x, double scale, DType to) {
    double best = std::fabs(x);
    const int codes = 1 << dtype_bits(to);
    const bool integer = to == DType::kInt4 || to == DType::kInt8;
    for (int code = 0; code < codes; ++code) {
        const double q = number_of(to, code) - (integer ? codes / 2 : 0);
        if (!std::isnan(q)) best = std::min(best, std::fabs(x - q * scale));
    }
    return best;
}

}  // namespace

TEST_CASE("a dense weight is quantised to the nearest codes, alike in whole and in rectangles",
          "[importer]") {
    std::mt19937 rng(5);
    for (DType to : {DType::kInt4, DType::kInt8, DType::kF8E4M3, DType::kMxfp4})
        for (DType from : {DType::kF32, DType::kBF16})
            for (bool transposed : {false, true}) {
                INFO(dtype_name(to)
                     << " of " << dtype_name(from) << (transposed ? " transposed" : ""));
                QuantizedMatrix m = dense_matrix(37, 104, transposed, from, rng);
                m.graph = importer::quantize_weights(std::move(m.graph), to);
                const auto f = importer::quantized_format(m.weight());
                const auto l = importer::quantized_layout(f, 37, 104);
                CHECK(f.block == (to == DType::kF8E4M3 ? 0 : 32));
                const std::vector<std::byte> whole = device_bytes(m, {0, 37}, {0, 104});
                const std::vector<float> read = expanded(m, {0, 37}, {0, 104});
                for (int64_t r = 0; r < 37; ++r)
                    for (int64_t c = 0; c < 104; ++c) {
                        CAPTURE(r, c);
                        const auto at = static_cast<size_t>(r * 104 + c);
                        const double got = element(whole, f, 37, 104, r, c);
                        const int64_t block = f.block > 0 ? c / f.block : 0;
                        const double scale =
                            float_at(whole.data() + l.scales_offset + r * l.scale_row_bytes +
                                         block * dtype_bits(f.scale) / 8,
                                     f.scale);
                        REQUIRE(std::fabs(got - m.values[at]) <=
                                nearest(m.values[at], scale, to) + 1e-5 * std::fabs(scale));
                        REQUIRE(read[at] == Approx(got).epsilon(1e-6));
                        // The step between codes, as the formats promise; what is beyond 6 of MXFP4
                        // is below 8.
                        const double step = to == DType::kF8E4M3  ? 16.1
                                            : to == DType::kMxfp4 ? 2.0
                                                                  : 1.01;
                        REQUIRE(std::fabs(got - m.values[at]) <= std::fabs(scale) * step);
                    }
                const std::vector<std::byte> part = device_bytes(m, {5, 36}, {32, 104});
                const std::vector<float> read_part = expanded(m, {5, 36}, {7, 50});
                for (int64_t r = 0; r < 31; ++r) {
                    for (int64_t c = 0; c < 72; ++c)
                        REQUIRE(element(part, f, 31, 72, r, c) ==
                                element(whole, f, 37, 104, r + 5, c + 32));
                    for (int64_t c = 0; c < 43; ++c)
                        REQUIRE(read_part[static_cast<size_t>(r * 43 + c)] ==
                                read[static_cast<size_t>((r + 5) * 104 + c + 7)]);
                }
            }
}

TEST_CASE("mxfp4 is the OCP's: every code with every scale", "[importer]") {
    const QuantizedMatrix m = all_of_mxfp4();
    const std::vector<float> read = expanded(m, {0, 256}, {0, 32});
    const std::vector<std::byte> device = device_bytes(m, {0, 256}, {0, 32});
    const auto format = importer::quantized_format(m.weight());
    for (int64_t i = 0; i < 256 * 32; ++i) {
        CAPTURE(i / 32, i % 16);
        const auto want = static_cast<float>(m.values[static_cast<size_t>(i)]);
        const float got = read[static_cast<size_t>(i)];
        REQUIRE((std::isnan(want) ? std::isnan(got) : got == want));
        const auto packed = static_cast<float>(element(device, format, 256, 32, i / 32, i % 32));
        REQUIRE((std::isnan(want) ? std::isnan(packed) : packed == want));
    }
    CHECK(read[254 * 32 + 3] == 1.5f * 0x1p127f);
    CHECK(read[2] == 0x1p-127f);
}

TEST_CASE("mxfp4 rounds to nearest, ties to the even mantissa, with the block's power of two",
          "[importer]") {
    // The first of each block makes its scale: floor(log2(6.9)) - 2 = 0, and 2^-3 of 0.9.
    const std::vector<float> x{6.9f, 0.25f, -0.25f, 0.26f, 0.75f,  1.25f, 1.75f, 2.5f,
                               3.5f, 5.0f,  5.1f,   -7.0f, -0.74f, 4.9f,  0.0f,  1e-30f};
    const std::vector<double> want{6, 0, 0, 0.5, 1, 1, 2, 2, 4, 4, 6, -6, -0.5, 4, 0, 0};
    QuantizedMatrix m;
    std::vector<float> values(64);
    std::copy(x.begin(), x.end(), values.begin());
    values[32] = 0.9f;  // of scale 1/8: 7.2 becomes 6
    values[33] = -0.1f;
    importer::Weight w;
    w.name = "w";
    w.shape = w.source_shape = {1, 64};
    w.data.blob = importer::BlobId(0);
    w.data.length = 256;
    std::vector<std::byte> bytes(256);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    m.graph.blobs.push_back(std::move(bytes));
    m.graph.weights.push_back(std::move(w));
    importer::Op op;
    op.kind = importer::OpKind::kLinear;
    op.name = "linear";
    op.attrs = importer::LinearAttrs{};
    op.weights = {WeightId(0)};
    m.graph.ops.push_back(std::move(op));
    m.graph = importer::quantize_weights(std::move(m.graph), DType::kMxfp4);
    const std::vector<float> read = expanded(m, {0, 1}, {0, 64});
    for (size_t i = 0; i < want.size(); ++i) {
        CAPTURE(i, x[i]);
        CHECK(read[i] == want[i]);
    }
    CHECK(read[32] == 0.75f);
    CHECK(read[33] == -0.125f);  // -0.8 / 8 becomes -1 / 8
}

TEST_CASE("a weight that is no number is not quantised, and its row is named", "[importer]") {
    std::mt19937 rng(6);
    for (float bad : {NAN, INFINITY}) {
        QuantizedMatrix m = dense_matrix(8, 64, false, DType::kF32, rng);
        std::memcpy(m.graph.blobs[0].data() + (3 * 64 + 40) * 4, &bad, 4);
        m.graph = importer::quantize_weights(std::move(m.graph), DType::kInt4);
        CHECK_THAT(user_error([&] { device_bytes(m, {0, 8}, {0, 64}); }),
                   Catch::Matchers::Contains("w: row 3") && Catch::Matchers::Contains("int4"));
    }
    CHECK_THAT(user_error([&] { importer::quantize_weights({}, DType::kInt8); }),
               Catch::Matchers::Contains("no Linear or Embedding"));
}

}  // namespace cleave::test
