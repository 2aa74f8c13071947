// SPDX-License-Identifier: Apache-2.0
#include "importer/import.h"

#include "importer/onnx/exporter.h"
#include "importer/onnx/read/passes.h"
#include "importer/onnx/recover/layers.h"
#include "importer/onnx/recover/opaque.h"
#include "importer/onnx/recover/recovery.h"
#include "importer/onnx/recover/roles.h"

namespace cleave::importer {

Graph import_onnx(const std::string& path, const ImportOptions& options) {
    using namespace from_onnx;
    // Parse, inline functions, choose branches, locate tensors, sort nodes.
    Model model = read_model(path, options);
    // Which input is token ids, mask, positions, past.
    const std::vector<InputRole> roles = find_roles(model);
    resolve_past_sizes(model, roles);
    Recovery recovery(model, roles);
    // What each value means: shapes and masks by evaluation, operators by their matchers.
    recovery.run();
    // The layers, checked, in order; or, of what is no Llama, the nodes as they are.
    Graph graph = looks_like_llama(recovery) ? build_graph(recovery, model)
                                             : build_opaque_graph(recovery, model);
    graph.exporter = guess_exporter(model);
    check_graph(graph);
    return graph;
}

}  // namespace cleave::importer
