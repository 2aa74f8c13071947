// SPDX-License-Identifier: Apache-2.0
// ONNX file -> Graph. The passes, in order, are listed in importer/onnx/import.cpp.
#pragma once

#include <memory>
#include <string>

#include "importer/graph/graph.h"

namespace onnx {
class ModelProto;
}

namespace cleave::importer {

struct ImportOptions {
    bool weights_may_be_absent = false;  // `--weights none`: external data need not exist
};

// Reads `path` (an .onnx file, or a folder with exactly one) and recovers the model. External data
// is memory-mapped later, never read here; its offsets and lengths are checked. Throws UserError
// naming the file, node and operator for everything it does not understand. No global state; any
// thread.
Graph import_onnx(const std::string& path, const ImportOptions& options = {});

// The same of a model that is in memory. `path` is the file that errors and the Graph name;
// external data is beside it.
Graph import_onnx(std::unique_ptr<onnx::ModelProto> proto, const std::string& path,
                  const ImportOptions& options = {});

}  // namespace cleave::importer
