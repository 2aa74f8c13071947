// SPDX-License-Identifier: Apache-2.0
// The pass from an ONNX file to a Graph, as a golden sees it.
#pragma once

#include <string>

namespace cleave::test {

// In: a model in ONNX's textual form (onnx/docs/Syntax.md). Out: the operators that the importer
// recovers, and where their weights lie in the file's.
std::string recovery(const std::string& text, const std::string& origin);

}  // namespace cleave::test
