// SPDX-License-Identifier: Apache-2.0
// Terms -> Graph: walks back from the logits over the residual stream, layer by layer, checks that each
// layer has a Llama's structure and reads its own cache, and writes the operators in their order, named.
#pragma once

#include "importer/onnx/recover/recovery.h"

namespace cleave::importer::from_onnx {

// UserError naming the node that does not fit.
Graph build_graph(Recovery& recovery, Model& model);

}  // namespace cleave::importer::from_onnx
