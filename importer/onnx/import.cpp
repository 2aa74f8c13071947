// SPDX-License-Identifier: Apache-2.0
#include "importer/onnx/import.h"

#include <algorithm>

#include "importer/onnx/exporter.h"
#include "importer/onnx/read/passes.h"
#include "importer/onnx/recover/layers.h"
#include "importer/onnx/recover/opaque.h"
#include "importer/onnx/recover/recovery.h"
#include "importer/onnx/recover/roles.h"
#include "importer/onnx/recover/tensor_graph.h"
#include "runtime/base/errors.h"

namespace cleave::importer {
namespace {

// What keeps a graph of token ids from being a Llama: the first reason behind one of its outputs,
// and its node.
from_onnx::TensorGraph what_stops(const from_onnx::Recovery& r) {
    using namespace from_onnx;
    TensorGraph stopped;
    const auto takes_ids = std::find(r.roles.begin(), r.roles.end(), InputRole::kTokenIds);
    if (takes_ids == r.roles.end()) return stopped;
    for (Ref out : r.model.outputs)
        if (const auto* u = r.get<Unknown>(out); u && stopped.reason.empty())
            stopped.reason = u->reason;
    for (size_t i = 0; i < r.model.nodes.size() && !stopped.reason.empty(); ++i)
        if (stopped.reason.starts_with(r.describe(r.model.nodes[i])))
            stopped.node = static_cast<int>(i);
    return stopped;
}

// A Llama's layers, checked, in order; or, of what is none, the nodes as they are.
Graph recover_graph(from_onnx::Model& model, const std::vector<from_onnx::InputRole>& roles,
                    const from_onnx::TensorGraph& tensors) {
    free_static_caches(model, roles);
    resolve_past_sizes(model, roles);
    from_onnx::Recovery recovery(model, roles);
    // What each value means: shapes and masks by evaluation, operators by their matchers.
    recovery.run();
    if (!looks_like_llama(recovery)) {
        const from_onnx::TensorGraph stopped = what_stops(recovery);
        return build_opaque_graph(recovery, model, "no Llama",
                                  stopped.reason.empty() ? tensors : stopped);
    }
    if (!has_head(recovery))
        return build_opaque_graph(
            recovery, model, "a decoder without its language-model head, which gives no logits",
            tensors);
    return build_graph(recovery, model);
}

}  // namespace

Graph import_onnx(const std::string& path, const ImportOptions& options) {
    const std::string file = from_onnx::find_onnx_file(path);
    return import_onnx(from_onnx::parse_model(file), file, options);
}

Graph import_onnx(std::unique_ptr<onnx::ModelProto> proto, const std::string& path,
                  const ImportOptions& options) {
    using namespace from_onnx;
    // Inline functions, choose branches, locate tensors, sort nodes.
    Model model = read_model(std::move(proto), path, options);
    // Which input is token ids, mask, positions, past.
    const std::vector<InputRole> roles = find_roles(model);
    Graph graph;
    TensorGraph tensors;
    // Without token ids it is no Llama; perhaps operators over tensors that are computed one by
    // one.
    if (std::find(roles.begin(), roles.end(), InputRole::kTokenIds) == roles.end())
        tensors = build_tensor_graph(model);
    if (tensors.graph)
        graph = std::move(*tensors.graph);
    else
        graph = recover_graph(model, roles, tensors);
    graph.exporter = guess_exporter(model);
    if (const std::string name = unprintable_name(graph); !name.empty())
        throw UserError(
            "{}: the name '{}' has control characters; names of nodes, values and initializers are "
            "printable text: rename it in the exported model",
            path, name);
    for (const Weight& weight : graph.weights)
        if (weight.num_elements() == 0)
            throw UserError(
                "{}: the initializer '{}' has no elements, and an operator reads it as a weight; "
                "export the model without that operator",
                path, weight.name);
    check_graph(graph);
    return graph;
}

}  // namespace cleave::importer
