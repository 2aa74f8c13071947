// SPDX-License-Identifier: Apache-2.0
// Reads rectangles of a Graph's weights out of the memory-mapped files, converting dense floating
// types as they are copied. Files are mapped at first use; nothing else is read. Thread-safe:
// several devices cut their shards at once.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "importer/weights/quantized_shard.h"

namespace cleave::importer {

class WeightReader {
public:
    // Keeps a reference to `graph`, which must outlive it.
    explicit WeightReader(const Graph& graph);
    ~WeightReader();
    WeightReader(const WeightReader&) = delete;
    WeightReader& operator=(const WeightReader&) = delete;

    // The bytes a DataRef names. UserError when the file is absent or shorter than the reference.
    std::span<const std::byte> bytes(const DataRef& ref) const;

    // The stored bytes that hold logical rows of a weight: of one that is dense and not transposed
    // these alone, else all of it. None are read. UserError as of `bytes`.
    std::span<const std::byte> stored_bytes(WeightId weight, Range rows) const;

    // The stored bytes of logical rows x columns where they are what `read` would copy: dense, of
    // the type `to`, row behind row; else nothing. Nothing either where fewer than kBehind bytes
    // follow: who reads whole vectors may read so far. None are read. UserError as of `bytes`.
    std::span<const std::byte> stored_as_read(WeightId weight, Range rows, Range columns,
                                              DType to) const;
    static constexpr size_t kBehind = 64;

    // Copies logical rows x columns of a matrix (or rows of a vector; columns ignored) to
    // `destination` as [rows, columns] row major of the floating type `to`; a quantised weight is
    // expanded, (q - zero) * scale in f32. UserError when the weight has no data.
    void read(WeightId weight, Range rows, Range columns, DType to,
              std::span<std::byte> destination) const;
    // The same of a weight that need not be in the graph, but views its files.
    void read(const Weight& weight, Range rows, Range columns, DType to,
              std::span<std::byte> destination) const;

    // Copies logical rows x columns of a quantised weight, still quantised. `columns` begins where
    // a block does.
    void read_quantized(WeightId weight, Range rows, Range columns,
                        const QuantizedParts& destination) const;

private:
    const Weight& with_data(WeightId weight) const;
    // The file, or the blob, that the reference is to.
    std::span<const std::byte> whole(const DataRef& ref) const;
    struct Files;
    std::unique_ptr<Files> files_;
    const Graph& graph_;
};

// Throws UserError: a code, scale or block of the weight is not within its bytes. The importer has
// looked at this; a plan file may say otherwise.
[[noreturn]] void refuse_outside(const Weight& weight, std::string_view what);

}  // namespace cleave::importer
