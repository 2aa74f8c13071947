// SPDX-License-Identifier: Apache-2.0
// A graph that is no Llama, as it stands: every node an Opaque operator with its cost. It can be planned and
// exported; the runtime refuses it by name.
#pragma once

#include "importer/onnx/recover/recovery.h"

namespace cleave::importer::from_onnx {

// True when the graph embeds token ids and normalises by RMS: then what stops the recovery is an error.
bool looks_like_llama(const Recovery& recovery);

Graph build_opaque_graph(Recovery& recovery, Model& model);

}  // namespace cleave::importer::from_onnx
