// SPDX-License-Identifier: Apache-2.0
#include "planner/analysis/placement.h"

#include <algorithm>

#include "importer/weights/quantize.h"
#include "importer/weights/quantized_shard.h"

namespace cleave::planner {

using namespace importer;

Analysis analyse(const Graph& graph) {
    Analysis a{graph, assign_splits(graph), {}, {}, {}, {}};
    a.groups = fuse(graph, a.splits);
    a.units = find_units(graph, a.splits, a.groups);
    a.last_group.assign(graph.values.size(), -1);
    a.made_by.assign(graph.values.size(), -1);
    for (size_t g = 0; g < a.groups.size(); ++g) {
        const FusedGroup& group = a.groups[g];
        auto visit = [&](OpId id) {
            for (ValueId v : graph.op(id).inputs) a.last_group[v.index()] = static_cast<int>(g);
            for (ValueId v : graph.op(id).outputs) a.made_by[v.index()] = static_cast<int>(g);
        };
        for (OpId id : group.ops) visit(id);
        if (group.epilogue.valid()) visit(group.epilogue);
    }
    return a;
}

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
