// SPDX-License-Identifier: Apache-2.0
// Apart from the other passes: ONNX's CHECK is another.
#include "tests/golden/recovery.h"

#include <fstream>

#include <onnx/defs/parser.h>

#include "importer/onnx/import.h"
#include "tests/support/notation.h"
#include "tests/support/test.h"

namespace cleave::test {

std::string recovery(const std::string& text, const std::string& origin) {
    onnx::ModelProto model;
    onnx::OnnxParser parser(text.c_str());
    if (const auto status = parser.Parse(model); !status.IsOK())
        throw UserError("{}: {}", origin, status.ErrorMessage());
    TemporaryFolder folder;
    const std::string path = (folder.path() / "model.onnx").string();
    std::ofstream file(path, std::ios::binary);
    if (!model.SerializeToOstream(&file)) throw UserError("{} cannot be written", path);
    file.close();
    planner::Plan plan;
    try {
        plan.graph = importer::import_onnx(path, {.weights_may_be_absent = true});
    } catch (const UserError& error) {
        const std::string_view message = error.what();
        return fmt::format("error: {}\n", message.substr(folder.path().string().size() + 1));
    }
    // How a file is called and where weights stand in it are not what a case is about.
    for (importer::Weight& w : plan.graph.weights) {
        w.data = {};
        w.quantization.scales = w.quantization.zero_points = {};
    }
    Printer printer(plan);
    for (const importer::Weight& w : plan.graph.weights) printer.line("weight", w);
    return importer::to_text(plan.graph) + printer.text();
}

}  // namespace cleave::test
