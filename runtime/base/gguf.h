// SPDX-License-Identifier: Apache-2.0
// The header of a GGUF file: what it says, and where its tensors lie. Format:
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little-endian). In:
// a path. Out: key-value pairs as one JSON object, and tensors in the order of their bytes, which
// do not overlap. No tensor's byte is read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace cleave {

// Element types. A row of a matrix is whole blocks.
enum class GgufType : uint8_t {
    kF32,
    kF16,
    kBF16,
    kQ40,
    kQ41,
    kQ50,
    kQ51,
    kQ80,
    kQ2K,
    kQ3K,
    kQ4K,
    kQ5K,
    kQ6K,
};
inline constexpr GgufType kLastGgufType = GgufType::kQ6K;

struct GgufLayout {
    GgufType type;
    uint32_t number;  // of ggml.h
    std::string_view name;
    int64_t elements;  // of a block
    int64_t bytes;     // likewise
};
const GgufLayout& gguf_layout(GgufType type);

struct GgufTensor {
    std::string name;
    GgufType type = GgufType::kF32;
    std::vector<int64_t> shape;  // row major: the last dimension is contiguous
    uint64_t offset = 0;         // in the file
    uint64_t length = 0;         // bytes
};

struct GgufFile {
    std::string path;
    uint64_t size = 0;
    // "llama.block_count": 2, "tokenizer.ggml.tokens": ["<unk>", ...]. Texts may be no UTF-8.
    nlohmann::json metadata = nlohmann::json::object();
    std::vector<GgufTensor> tensors;

    const GgufTensor* find(std::string_view name) const;
    std::string architecture() const;  // "llama"; UserError where the file does not say
};

// Whether the file begins as one does, whatever its name. Absent files do not.
bool is_gguf(const std::string& path);

// UserError naming the file, and the key or tensor at fault: no such format, a later version,
// big-endian, a part of a split model, cut short, a type that is not supported, a tensor outside of
// the file or over another one, a name that is there twice.
GgufFile read_gguf(const std::string& path);

}  // namespace cleave
