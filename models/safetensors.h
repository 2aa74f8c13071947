// SPDX-License-Identifier: Apache-2.0
// The header of a .safetensors file: which tensors it has, and where. Format:
// https://github.com/huggingface/safetensors#format : eight bytes of the header's length, the
// header as JSON, then the tensors' bytes. In: a path. Out: tensors in the order of their bytes,
// which fill the file without gap or overlap. No tensor's byte is read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cleave::models {

struct StoredTensor {
    std::string name;
    std::string dtype;  // as the file names it: "BF16"
    std::vector<int64_t> shape;
    uint64_t offset = 0;  // in the file
    uint64_t length = 0;  // bytes
};

struct SafetensorsFile {
    std::string path;
    uint64_t size = 0;
    std::vector<StoredTensor> tensors;
};

// UserError naming the file, and the tensor where one is at fault: no such format, cut short, an
// element type that the format does not have, a shape that does not fit its bytes.
SafetensorsFile read_safetensors(const std::string& path);

// Bits of an element of that type, 0 for one that the format does not have.
int safetensors_bits(const std::string& dtype);

}  // namespace cleave::models
