// SPDX-License-Identifier: Apache-2.0
#include "importer/onnx/exporter.h"

#include <algorithm>

namespace cleave::importer::from_onnx {

std::string guess_exporter(const Model& model) {
    const auto any = [&](auto wanted) {
        return std::any_of(model.nodes.begin(), model.nodes.end(), wanted);
    };
    std::string name = model.producer.empty() ? "unknown exporter" : model.producer;
    if (model.producer == "pytorch") {
        // The dynamo exporter writes IR 10 and newer; TorchScript paths start with a slash.
        const bool paths = any([](const Node& n) { return n.name.starts_with("/"); });
        name = paths && model.proto->ir_version() < 10 ? "torch (TorchScript)" : "torch (dynamo)";
    } else if (model.producer.empty() &&
               any([](const Node& n) { return n.domain == "com.microsoft"; })) {
        name = "onnxruntime tools";
    }
    if (!model.producer_version.empty()) name += " " + model.producer_version;
    return fmt::format("{}, opset {}", name, model.opset);
}

}  // namespace cleave::importer::from_onnx
