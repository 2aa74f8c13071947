// SPDX-License-Identifier: Apache-2.0
#include <random>

#include "importer/weights/weight_reader.h"
#include "runtime/base/convert.h"
#include "tests/support/test.h"

using namespace cleave;
using importer::Range;
using importer::WeightId;

namespace {

// A matrix [rows, columns] of `dtype`, stored [columns, rows] behind `offset` bytes of something
// else.
importer::Graph stored_transposed(int64_t rows, int64_t columns, DType dtype, size_t offset,
                                  std::vector<float>& values) {
    std::mt19937 rng(static_cast<uint32_t>(rows));
    std::normal_distribution<float> normal;
    const auto size = static_cast<size_t>(dtype_bits(dtype) / 8);
    importer::Graph graph;
    std::vector<std::byte> bytes(offset + static_cast<size_t>(rows * columns) * size);
    values.resize(static_cast<size_t>(rows * columns));
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c) {
            const float x = normal(rng);
            std::byte* stored = bytes.data() + offset + static_cast<size_t>(c * rows + r) * size;
            convert_elements(DType::kF32, &x, dtype, stored, 1);
            convert_elements(dtype, stored, DType::kF32,
                             &values[static_cast<size_t>(r * columns + c)], 1);
        }
    importer::Weight w;
    w.name = "w";
    w.shape = {rows, columns};
    w.source_shape = {columns, rows};
    w.transposed = true;
    w.dtype = dtype;
    w.data.blob = importer::BlobId(0);
    w.data.offset = offset;
    w.data.length = bytes.size() - offset;
    graph.blobs.push_back(std::move(bytes));
    graph.weights.push_back(std::move(w));
    return graph;
}

}  // namespace

TEST_CASE(
    "every rectangle of a matrix that is stored transposed is read element by element as it is",
    "[importer]") {
    constexpr int64_t kRows = 203, kColumns = 391;  // some whole tiles, and rests, both ways
    for (DType from : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3}) {
        std::vector<float> values;
        const importer::Graph graph = stored_transposed(kRows, kColumns, from, 6, values);
        const importer::WeightReader reader(graph);
        for (DType to : {from, DType::kF32, DType::kBF16})
            for (const auto& [rows, columns] :
                 {std::pair{Range{0, kRows}, Range{0, kColumns}},
                  std::pair{Range{1, 2}, Range{0, 391}}, std::pair{Range{64, 192}, Range{128, 384}},
                  std::pair{Range{7, 143}, Range{5, 390}},
                  std::pair{Range{200, 203}, Range{390, 391}}}) {
                INFO(dtype_name(from) << " to " << dtype_name(to) << ", rows from " << rows.begin
                                      << ", columns from " << columns.begin);
                const int64_t count = rows.size() * columns.size();
                std::vector<std::byte> got(static_cast<size_t>(dtype_bytes(to, count))), want;
                reader.read(WeightId(0), rows, columns, to, got);
                std::vector<float> rectangle;
                for (int64_t r = rows.begin; r < rows.end; ++r)
                    for (int64_t c = columns.begin; c < columns.end; ++c)
                        rectangle.push_back(values[static_cast<size_t>(r * kColumns + c)]);
                want.resize(got.size());
                convert_elements(DType::kF32, rectangle.data(), to, want.data(), count);
                REQUIRE(got == want);
            }
    }
}
