// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>

#include "importer/onnx/read/passes.h"
#include "importer/onnx/read/wire_format.h"
#include "runtime/base/errors.h"
#include "runtime/base/folder.h"
#include "runtime/base/path_state.h"

namespace cleave::importer::from_onnx {
namespace fs = std::filesystem;

namespace {
constexpr int64_t kNewestIr = 14;
constexpr int64_t kOldestOpset = 9;
}  // namespace

std::string find_onnx_file(const std::string& path) {
    if (!is_there(path))
        throw UserError("{}: no such file or folder; give an .onnx file or a folder with one",
                        path);
    if (!is_folder(path)) return path;
    std::vector<std::string> found = names_if_folder(path);
    std::erase_if(found,
                  [](const std::string& name) { return fs::path(name).extension() != ".onnx"; });
    if (found.empty())
        throw UserError("{}: the folder has no .onnx file; give the file's own path", path);
    for (const std::string& name : found)
        if (found.size() > 1 && name == "model.onnx") return fs::path(path) / name;
    if (found.size() > 1)
        throw UserError("{}: the folder has {} .onnx files ({}, {}, ...); give the one to read",
                        path, found.size(), found[0], found[1]);
    return fs::path(path) / found[0];
}

namespace {

// Every operator set in use must be listed; a file cut short at the end lacks some. Nodes of
// branches count as well.
void check_domains(const onnx::ModelProto& proto,
                   const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes,
                   const std::string& path) {
    const auto plain = [](const std::string& domain) {
        return domain == "ai.onnx" ? std::string() : domain;
    };
    for (const onnx::NodeProto& node : nodes) {
        const auto& sets = proto.opset_import();
        const auto& functions = proto.functions();
        const bool listed = std::any_of(sets.begin(), sets.end(),
                                        [&](const auto& set) {
                                            return plain(set.domain()) == plain(node.domain());
                                        }) ||
                            std::any_of(functions.begin(), functions.end(),
                                        [&](const auto& f) { return f.domain() == node.domain(); });
        if (!listed)
            throw UserError(
                "{}: node '{}' ({}) is of the operator set '{}', which the file does not list; it "
                "is cut "
                "short or damaged: copy it again or export it anew",
                path, node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name(),
                node.op_type(), node.domain().empty() ? "ai.onnx" : node.domain());
        for (const onnx::AttributeProto& a : node.attribute())
            if (a.has_g()) check_domains(proto, a.g().node(), path);
    }
}

}  // namespace

std::unique_ptr<onnx::ModelProto> parse_model(const std::string& path) {
    MappedFile file(path);
    std::optional<std::string> small = without_tensor_bytes(file.bytes());
    auto proto = std::make_unique<onnx::ModelProto>();
    if (file.bytes().empty() || !small || !proto->ParseFromString(*small) || !proto->has_graph() ||
        proto->opset_import_size() + proto->functions_size() == 0)
        throw UserError(
            "{}: not an ONNX model, or cut short ({} bytes); copy it again or export it anew", path,
            file.bytes().size());
    if (proto->ir_version() > kNewestIr)
        throw UserError("{}: ONNX IR version {}; versions up to {} are supported", path,
                        proto->ir_version(), kNewestIr);
    for (const onnx::OperatorSetIdProto& set : proto->opset_import())
        if ((set.domain().empty() || set.domain() == "ai.onnx") && set.version() < kOldestOpset)
            throw UserError("{}: opset {}; {} and newer are supported: export it anew", path,
                            set.version(), kOldestOpset);
    check_domains(*proto, proto->graph().node(), path);
    return proto;
}

}  // namespace cleave::importer::from_onnx
