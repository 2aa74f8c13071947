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

std::optional<DType> activation_rounding(const Weight& weight, const Workload& workload) {
    if (weight.shape.size() != 2) return std::nullopt;
    const DType dtype = device_dtype(weight, workload);
    if (!stays_quantized(weight, dtype))
        return dtype == DType::kBF16 ? std::optional(DType::kBF16) : std::nullopt;
    const QuantizedFormat format = quantized_format(weight);
    const bool integers = format.code == DType::kUInt4 || format.code == DType::kUInt8;
    if (!integers || format.dynamic_activations || format.block % kRoundingGroup != 0)
        return std::nullopt;
    return DType::kInt8;
}

bool any_product_rounds(const Graph& graph, const Workload& workload) {
    return std::any_of(graph.ops.begin(), graph.ops.end(), [&](const Op& op) {
        return op.kind == OpKind::kLinear &&
               activation_rounding(graph.weight(op.weights[0]), workload);
    });
}

int64_t column_block(const Weight& weight, const Workload& workload) {
    if (weight.shape.size() != 2 || !stays_quantized(weight, device_dtype(weight, workload)))
        return 1;
    return std::max<int64_t>(1, weight.quantization.block);
}

int64_t shard_bytes(const Weight& weight, int64_t rows, int64_t columns, DType dtype) {
    if (weight.shape.size() < 2) return dtype_bytes(dtype, rows);
    if (stays_quantized(weight, dtype))
        return quantized_layout(quantized_format(weight), rows, columns).bytes;
    return dtype_bytes(dtype, rows * columns);
}

int64_t weights_bytes(const Graph& graph, const Workload& workload) {
    int64_t bytes = 0;
    for (const Weight& w : graph.weights) {
        const bool matrix = w.shape.size() == 2;
        bytes += shard_bytes(w, matrix ? w.shape[0] : w.num_elements(), matrix ? w.shape[1] : 1,
                             device_dtype(w, workload));
    }
    return bytes;
}

}  // namespace cleave::planner
