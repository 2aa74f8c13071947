// SPDX-License-Identifier: Apache-2.0
#include "planner/view/step_words.h"

#include <fmt/format.h>

#include "planner/plan/plan_queries.h"

namespace cleave::planner {

std::string step_words(const Graph& graph, const Step& step) {
    if (const Compute* c = step.compute()) {
        std::string text(kernel_kind_name(c->kernel));
        // A projection says which one.
        if (c->kernel == KernelKind::kLinear || c->kernel == KernelKind::kNormLinear)
            for (OpId id : c->ops)
                if (graph.op(id).kind == importer::OpKind::kLinear) {
                    const std::string& op = graph.op(id).name;
                    text += " " + op.substr(op.rfind('.') + 1);
                }
        // Over tensors: what ONNX calls the operators of the launch.
        if (c->kernel == KernelKind::kTensor)
            for (size_t i = 0; i < c->ops.size(); ++i) {
                if (i == 0) text.clear();
                text += i == 0 ? "" : " + ";
                text += onnx_op_type(graph.op(c->ops[i]));
            }
        return text;
    }
    if (step.transfer()) return "transfer";
    const Collective& c = *step.collective();
    std::string text(collective_op_name(c.op));
    for (OpId id : c.epilogue) text += fmt::format(" + {}", op_kind_name(graph.op(id).kind));
    return text;
}

}  // namespace cleave::planner
