// SPDX-License-Identifier: Apache-2.0
#include "importer/weights/read_transposed.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/convert.h"
#include "runtime/base/errors.h"

namespace cleave::importer {
namespace {

// Of the destination. A run of the source is kTileRows elements, a run of the destination
// kTileColumns; a tile stays in the first-level cache, its rows so far apart that they do not share
// its sets.
constexpr int64_t kTileRows = kTransposedTileRows, kTileColumns = 128;
constexpr int64_t kStride = kTileColumns + 32;

template <class Element>
struct Tile {
    alignas(64) Element cells[kTileRows * kStride];

    // `source`: its element (first column, first row).
    void fill(const std::byte* source, int64_t source_columns, int64_t rows, int64_t columns) {
        if (rows == kTileRows && columns == kTileColumns) return fill_whole(source, source_columns);
        for (int64_t c = 0; c < columns; ++c)
            for (int64_t r = 0; r < rows; ++r)
                std::memcpy(&cells[r * kStride + c],
                            source + (c * source_columns + r) * int64_t{sizeof(Element)},
                            sizeof(Element));
    }

private:
    // Squares of 16 bytes a side, transposed by halves: log2(side) steps of whole vectors.
    static constexpr int64_t kSide = 16 / sizeof(Element);
    using Vector [[gnu::vector_size(16)]] = Element;

    template <int... i>
    static Vector low_halves(Vector a, Vector b, std::integer_sequence<int, i...>) {
        return __builtin_shufflevector(a, b, (i % 2 ? int{kSide} + i / 2 : i / 2)...);
    }
    template <int... i>
    static Vector high_halves(Vector a, Vector b, std::integer_sequence<int, i...>) {
        return __builtin_shufflevector(a, b,
                                       int{kSide} / 2 + (i % 2 ? int{kSide} + i / 2 : i / 2)...);
    }

    void fill_whole(const std::byte* source, int64_t source_columns) {
        constexpr std::make_integer_sequence<int, kSide> kLanes;
        const int64_t line = source_columns * int64_t{sizeof(Element)};
        for (int64_t c = 0; c < kTileColumns; c += kSide) {
            for (int64_t r = 0; r < kTileRows; r += kSide) {
                Vector v[kSide];
                for (int64_t i = 0; i < kSide; ++i)
                    std::memcpy(&v[i], source + (c + i) * line + r * int64_t{sizeof(Element)}, 16);
                // Each step interleaves line i with line i + side / 2: after log2(side) of them
                // lanes are lines.
                for (int64_t step = 1; step < kSide; step *= 2) {
                    Vector next[kSide];
                    for (int64_t i = 0; i < kSide / 2; ++i) {
                        next[2 * i] = low_halves(v[i], v[i + kSide / 2], kLanes);
                        next[2 * i + 1] = high_halves(v[i], v[i + kSide / 2], kLanes);
                    }
                    std::memcpy(v, next, sizeof v);
                }
                for (int64_t i = 0; i < kSide; ++i)
                    std::memcpy(&cells[(r + i) * kStride + c], &v[i], 16);
            }
        }
    }
};

template <class Element>
void read_tiles(const std::byte* source, int64_t source_columns, Range rows, Range columns,
                DType from, DType to, std::byte* destination) {
    const int64_t size = sizeof(Element), to_size = dtype_bits(to) / 8;
    const int64_t width = columns.size();
    Tile<Element> tile;
    for (int64_t c = columns.begin; c < columns.end; c += kTileColumns) {
        const int64_t num_columns = std::min(kTileColumns, columns.end - c);
        for (int64_t r = rows.begin; r < rows.end; r += kTileRows) {
            const int64_t num_rows = std::min(kTileRows, rows.end - r);
            tile.fill(source + (c * source_columns + r) * size, source_columns, num_rows,
                      num_columns);
            for (int64_t i = 0; i < num_rows; ++i)
                convert_elements(
                    from, &tile.cells[i * kStride], to,
                    destination + ((r - rows.begin + i) * width + c - columns.begin) * to_size,
                    num_columns);
        }
    }
}

}  // namespace

void read_transposed(const std::byte* source, int64_t source_columns, Range rows, Range columns,
                     DType from, DType to, std::byte* destination) {
    switch (dtype_bits(from)) {
        case 8:
            return read_tiles<uint8_t>(source, source_columns, rows, columns, from, to,
                                       destination);
        case 16:
            return read_tiles<uint16_t>(source, source_columns, rows, columns, from, to,
                                        destination);
        case 32:
            return read_tiles<uint32_t>(source, source_columns, rows, columns, from, to,
                                        destination);
        case 64:
            return read_tiles<uint64_t>(source, source_columns, rows, columns, from, to,
                                        destination);
        default: CLEAVE_CHECK(false) << dtype_name(from) << ": no floating type of whole bytes";
    }
}

}  // namespace cleave::importer
