// SPDX-License-Identifier: Apache-2.0
// Changes an ONNX model as a hostile or broken exporter might: the message stays one that Protobuf
// reads, so the passes behind the parser are reached, which random bytes hardly do. Same seed, same
// change.
#pragma once

#include <cstdint>
#include <string>

#include <onnx/onnx_pb.h>

namespace cleave::fuzz {

// One to four changes: edges, operators, attributes, shapes, types, constants, functions, branches,
// interface.
void mutate_model(onnx::ModelProto& model, uint64_t seed);

// The model without documentation, and with its large tensors named as external data in the file
// `data`: small enough to be a seed of the fuzzer, and structurally the same.
void shrink_model(onnx::ModelProto& model, const std::string& data);

}  // namespace cleave::fuzz
