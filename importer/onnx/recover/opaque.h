// SPDX-License-Identifier: Apache-2.0
// A graph that is no Llama, as it stands: every node an Opaque operator with its cost. It can be planned and
// exported; the runtime refuses it by name.
#pragma once

#include "importer/onnx/recover/recovery.h"

namespace cleave::importer::from_onnx {

// True when the graph embeds token ids, normalises by RMS, and rotates something or keeps a cache: then what
// stops the recovery is an error.
bool looks_like_llama(const Recovery& recovery);

// `why` it is no Llama: becomes a note.
Graph build_opaque_graph(Recovery& recovery, Model& model, const std::string& why);

}  // namespace cleave::importer::from_onnx
