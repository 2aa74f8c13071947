// SPDX-License-Identifier: Apache-2.0
#include "planner/view/step_words.h"

#include <fmt/format.h>

#include "planner/plan/plan_queries.h"

namespace cleave::planner {

namespace {

// What follows a name's index: "" or "@b" or "/0".
std::string_view suffix(const DeviceInfo& device) {
    const size_t end = device.name.rfind(']');
    return end == std::string::npos ? "" : std::string_view(device.name).substr(end + 1);
}

}  // namespace

std::string folded_names(const Machine& machine, const std::vector<DeviceId>& devices) {
    std::string text;
    for (size_t i = 0; i < devices.size();) {
        const DeviceInfo& first = machine.device(devices[i]);
        const size_t bracket = first.name.rfind('[');
        size_t end = i + 1;
        for (; bracket != std::string::npos && end < devices.size(); ++end) {
            const DeviceInfo& next = machine.device(devices[end]);
            if (next.kind != first.kind || next.model != first.model ||
                suffix(next) != suffix(first) ||
                next.index != machine.device(devices[end - 1]).index + 1)
                break;
        }
        if (!text.empty()) text += ", ";
        text += end == i + 1
                    ? first.name
                    : fmt::format("{}[{}-{}]{}", first.name.substr(0, bracket), first.index,
                                  machine.device(devices[end - 1]).index, suffix(first));
        i = end;
    }
    return text;
}

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
