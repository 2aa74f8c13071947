// SPDX-License-Identifier: Apache-2.0
// Guesses which exporter wrote a model, for messages and notes; nothing depends on it.
#pragma once

#include <string>

#include "importer/onnx/model.h"

namespace cleave::importer::from_onnx {

// "torch (TorchScript) 2.4.0, opset 17".
std::string guess_exporter(const Model& model);

}  // namespace cleave::importer::from_onnx
