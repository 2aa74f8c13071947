// SPDX-License-Identifier: Apache-2.0
// A random quantised weight on a device: its bytes between guard words, its format, its values.
#pragma once

#include <cstring>
#include <random>
#include <vector>

#include "tests/codegen/support/kernel_reference.h"
#include "tests/codegen/support/kernel_runner.h"
#include "tests/support/quantized_matrix.h"

namespace cleave::test {

// A shard between guard words, as the runtime would place it.
struct Shard {
    QuantizedMatrix matrix;
    std::vector<std::byte> bytes;
    GuardedBuffer buffer;
    codegen::WeightFormat format;

    Shard(const QuantizedCase& c, std::mt19937& rng)
        : matrix(random_quantized(c, rng)),
          bytes(device_bytes(matrix, {0, c.rows}, {0, c.columns})),
          buffer("weight", DType::kInt32, static_cast<int64_t>(bytes.size() + 3) / 4),
          format(importer::quantized_format(matrix.weight())) {
        std::memcpy(reinterpret_cast<void*>(buffer.word()), bytes.data(), bytes.size());
    }
    uint64_t word() const { return buffer.word(); }
    double dot(int64_t row, const Row& x) const {
        double sum = 0;
        for (size_t i = 0; i < x.size(); ++i)
            sum += matrix.values[static_cast<size_t>(row) * x.size() + i] * x[i];
        return sum;
    }
};

}  // namespace cleave::test
