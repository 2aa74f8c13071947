// SPDX-License-Identifier: Apache-2.0
#include "planner/analysis/storage.h"

#include <algorithm>

#include "importer/weights/quantized_shard.h"

namespace cleave::planner {

using namespace importer;

DType device_dtype(const Weight& weight, const Workload& workload) {
    // Norm weights and biases stay as stored: they are small, and narrowing them only costs
    // accuracy. Types that quantise are those of the graph's weights already, where they may be.
    const bool converts = workload.dtype && !importer::is_quantizing(*workload.dtype);
    return converts && weight.shape.size() == 2 ? *workload.dtype : weight.dtype;
}

int64_t column_block(const Weight& weight, const Workload& workload) {
    if (weight.shape.size() != 2) return 1;
    DType dtype = device_dtype(weight, workload);
    return stays_quantized(weight, dtype) ? std::max<int64_t>(1, weight.quantization.block) : 1;
}

int64_t shard_bytes(const Weight& weight, int64_t rows, int64_t columns, DType dtype) {
    if (weight.shape.size() < 2) return dtype_bytes(dtype, rows);
    if (stays_quantized(weight, dtype))
        return quantized_layout(quantized_format(weight), rows, columns).bytes;
    return dtype_bytes(dtype, rows * columns);
}

}  // namespace cleave::planner
