// SPDX-License-Identifier: Apache-2.0
#include "importer/import.h"

#include "importer/onnx/exporter.h"
#include "importer/onnx/read/passes.h"
#include "importer/onnx/recover/layers.h"
#include "importer/onnx/recover/opaque.h"
#include "importer/onnx/recover/recovery.h"
#include "importer/onnx/recover/roles.h"
#include "runtime/base/errors.h"

namespace cleave::importer {
namespace {

// A mask that no Llama has is an error only in a Llama.
void run_unless_no_llama(from_onnx::Recovery& recovery) {
    try {
        recovery.run();
    } catch (const UserError&) {
        if (looks_like_llama(recovery)) throw;
    }
}

}  // namespace

Graph import_onnx(const std::string& path, const ImportOptions& options) {
    using namespace from_onnx;
    // Parse, inline functions, choose branches, locate tensors, sort nodes.
    Model model = read_model(path, options);
    // Which input is token ids, mask, positions, past.
    const std::vector<InputRole> roles = find_roles(model);
    free_static_caches(model, roles);
    resolve_past_sizes(model, roles);
    Recovery recovery(model, roles);
    // What each value means: shapes and masks by evaluation, operators by their matchers.
    run_unless_no_llama(recovery);
    // The layers, checked, in order; or, of what is no Llama, the nodes as they are.
    Graph graph;
    if (!looks_like_llama(recovery))
        graph = build_opaque_graph(recovery, model, "no Llama");
    else if (!has_head(recovery))
        graph = build_opaque_graph(
            recovery, model, "a decoder without its language-model head, which gives no logits");
    else
        graph = build_graph(recovery, model);
    graph.exporter = guess_exporter(model);
    check_graph(graph);
    return graph;
}

}  // namespace cleave::importer
