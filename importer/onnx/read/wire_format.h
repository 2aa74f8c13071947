// SPDX-License-Identifier: Apache-2.0
// Walks the Protobuf wire format of a ModelProto and copies it without the bytes of its large
// inline tensors; each of them is replaced by an external_data entry `kInlineKey` = "OFFSET,LENGTH"
// that says where in the file they are. So Protobuf never holds weights, and a weight is a view of
// the mapped file. Wire format: https://protobuf.dev/programming-guides/encoding/ ; field numbers:
// onnx.proto.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace cleave::importer::from_onnx {

inline constexpr char kInlineKey[] = "cleave.inline";

// The model without large tensor bytes, or nothing when `file` is not well-formed.
std::optional<std::string> without_tensor_bytes(std::span<const std::byte> file);

}  // namespace cleave::importer::from_onnx
