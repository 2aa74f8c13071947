// SPDX-License-Identifier: Apache-2.0
// What operators share that walk over their operands by strides: elementwise ones, and those that
// only move elements.
#pragma once

#include <vector>

#include "importer/onnx/tensor/tensor_reader.h"

namespace cleave::importer::from_onnx {

// Input `input` of the node; the element for index i is at offset + sum of strides[d] * i[d].
struct MapOperand {
    size_t input = 0;
    std::vector<int64_t> strides;  // one for each dimension of the result
    int64_t offset = 0;
};

// Result 0 of type `to` and `shape`, from up to three operands.
void write_map(TensorReader& r, DType to, std::vector<int64_t> shape, std::vector<MapOperand> from);

std::vector<int64_t> dense_strides(const std::vector<int64_t>& shape);

}  // namespace cleave::importer::from_onnx
