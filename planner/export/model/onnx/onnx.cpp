// SPDX-License-Identifier: Apache-2.0
#include "planner/export/model/onnx/onnx.h"

#include <filesystem>
#include <set>

#include "planner/export/model/onnx/annotate.h"
#include "runtime/base/errors.h"
#include "runtime/base/json_file.h"
#include "runtime/base/path_state.h"

namespace cleave::planner {
namespace {

namespace fs = std::filesystem;

// Files that initializers lie in, as the model names them.
std::set<std::string> external_files(const onnx::ModelProto& model) {
    std::set<std::string> files;
    for (const onnx::TensorProto& t : model.graph().initializer())
        for (const auto& entry : t.external_data())
            if (t.data_location() == onnx::TensorProto::EXTERNAL && entry.key() == "location")
                files.insert(entry.value());
    return files;
}

bool has_unequal_shards(const Plan& plan) {
    for (const WeightShard& a : plan.weights)
        for (const WeightShard& b : plan.weights) {
            if (&a == &b) break;
            if (a.weight == b.weight &&
                (a.rows.size() != b.rows.size() || a.columns.size() != b.columns.size()))
                return true;
        }
    return false;
}

}  // namespace

ExportResult export_onnx(const Plan& plan) {
    if (plan.graph.path.empty())
        throw UserError(
            "{} is a shape name: there is no ONNX file to annotate; write one with "
            "$write_empty_model",
            plan.graph.name);
    const fs::path path(plan.graph.path);
    if (path.filename() == "config.json")
        throw UserError(
            "{}: the model was converted in memory: there is no ONNX file to annotate; write it "
            "with $convert",
            path.string());
    onnx::ModelProto model = read_model_file(path.string());
    const std::set<std::string> files = external_files(model);
    annotate(plan, model);
    ExportResult result;
    ExportFile out{path.filename().string(), {}};
    if (!model.SerializeToString(&out.contents))
        throw UserError(
            "{}: with its annotations the model exceeds Protobuf's limit of 2 GB; "
            "store its weights as external data",
            path.string());
    result.files.push_back(std::move(out));
    for (const std::string& name : files) {
        const fs::path source = path.parent_path() / name;
        if (!is_there(source)) {  // --weights none
            result.not_expressed.push_back(name + " is absent, and is not beside the new file.");
            continue;
        }
        int64_t size = -1;
        for (const importer::SourceFile& file : plan.graph.files)
            if (fs::path(file.path) == source) size = static_cast<int64_t>(file.size);
        result.files.push_back({name, {}, [source, size](std::ostream& stream) {
                                    copy_regular_file(source, stream, size);
                                }});
    }
    result.commands = {{"cleave", "check", path.filename().string()}};
    result.not_expressed.emplace_back(
        "The standard shards tensors, not sums: that partial results of a row-parallel product are "
        "added stands in the node's metadata cleave.sum.");
    result.not_expressed.emplace_back(
        "The standard's stages have no devices: they stand in the model's metadata cleave.stage.N, "
        "transfers in cleave.transfers, and the whole plan in cleave.plan.");
    if (has_unequal_shards(plan))
        result.not_expressed.emplace_back(
            "The standard's shards are equal: unequal ones stand in the node's metadata "
            "cleave.shards.WEIGHT (device:rows x columns of the [out, in] matrix).");
    return result;
}

}  // namespace cleave::planner
