// SPDX-License-Identifier: Apache-2.0
// A graph that is no Llama, as it is: every node an Opaque operator with its cost. It can be
// planned and exported; the runtime refuses it by name.
#pragma once

#include "importer/onnx/recover/recovery.h"
#include "importer/onnx/recover/tensor_graph.h"

namespace cleave::importer::from_onnx {

// True when the graph embeds token ids, normalises by RMS, and rotates something or keeps a cache:
// then what stops the recovery is an error.
bool looks_like_llama(const Recovery& recovery);

// `why` it is no Llama becomes a note. `tensors` says what keeps it from being computed; that
// operator carries the reason.
Graph build_opaque_graph(Recovery& recovery, Model& model, const std::string& why,
                         const TensorGraph& tensors);

}  // namespace cleave::importer::from_onnx
