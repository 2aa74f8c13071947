// SPDX-License-Identifier: Apache-2.0
// Terms -> Graph: walks back from the logits over the residual stream, layer by layer, checks that
// each layer has a Llama's structure and reads its own cache, and writes the operators in their
// order, named.
#pragma once

#include "importer/onnx/recover/recovery.h"

namespace cleave::importer::from_onnx {

// False when all outputs are understood and none is made by a language-model head: a decoder's
// hidden states, which can be planned but give no tokens.
bool has_head(Recovery& recovery);

// UserError naming the node that does not fit.
Graph build_graph(Recovery& recovery, Model& model);

}  // namespace cleave::importer::from_onnx
