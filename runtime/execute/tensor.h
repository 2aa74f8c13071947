// SPDX-License-Identifier: Apache-2.0
// A tensor in host memory, as a graph that is no Llama takes and gives them: dense, row major,
// little-endian, two int4 a byte with the first in the low half.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"

namespace cleave::runtime {

struct Tensor {
    std::string name;
    DType dtype = DType::kF32;
    std::vector<int64_t> shape;
    std::vector<std::byte> data;
};

}  // namespace cleave::runtime
