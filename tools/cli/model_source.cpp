// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/model_source.h"

#include <filesystem>

#include <fmt/ranges.h>

#include "importer/onnx/import.h"
#include "models/llama_graph.h"
#include "models/shapes.h"
#include "planner/file/plan_file.h"
#include "runtime/base/errors.h"
#include "tools/cli/context_limit.h"
#include "tools/cli/suggest.h"

namespace cleave::tools {
namespace {

namespace fs = std::filesystem;

LoadedModel from_shape(const models::Shape& shape, const std::string& dtype) {
    LoadedModel model;
    model.kind = ModelKind::kShape;
    // The weights of a shape are stored in --dtype where that is a type of 16 bits or more;
    // narrower ones are what shards are converted to (workload_from_flags).
    std::optional<DType> stored =
        dtype.empty() ? std::nullopt : std::optional(dtype_flag("--dtype", dtype));
    model.graph = models::build_llama_graph(
        shape, stored && dtype_bits(*stored) >= 16 ? *stored : shape.dtype);
    model.max_positions = shape.config.max_positions;
    return model;
}

LoadedModel from_onnx(const fs::path& path, const ModelFlags& flags) {
    LoadedModel model;
    model.graph = importer::import_onnx(path.string(), {flags.weights == "none"});
    fs::path folder = fs::is_directory(path) ? path : path.parent_path();
    model.folder = folder.empty() ? "." : folder.string();
    model.max_positions = context_limit(model.graph, model.folder);
    return model;
}

LoadedModel from_plan(const fs::path& path) {
    LoadedModel model;
    model.kind = ModelKind::kPlan;
    model.plan = planner::load_plan(path.string());
    model.graph = model.plan->graph;
    model.folder =
        model.graph.path.empty() ? "" : fs::path(model.graph.path).parent_path().string();
    model.max_positions = model.plan->workload.context;
    return model;
}

}  // namespace

void make_paths_absolute(importer::Graph& graph) {
    if (!graph.path.empty()) graph.path = fs::absolute(graph.path).string();
    for (importer::SourceFile& file : graph.files) file.path = fs::absolute(file.path).string();
}

LoadedModel load_model(const ModelFlags& flags, const std::string& dtype) {
    if (flags.model.empty())
        throw UserError(
            "MODEL is empty: give an .onnx file, a folder with one, a .plan file or a shape name");
    if (std::optional<models::Shape> shape = models::find_shape(flags.model))
        return from_shape(*shape, dtype);
    const fs::path path = flags.model;
    std::error_code error;
    if (!fs::exists(path, error))
        throw UserError("{}: no such file or folder, and no shape name{}; shape names are {}",
                        flags.model, did_you_mean(flags.model, models::shape_names()),
                        fmt::join(models::shape_names(), ", "));
    if (path.extension() == ".plan") return from_plan(path);
    if (path.extension() == ".json")
        return from_shape(models::shape_from_config(path.string()), dtype);
    return from_onnx(path, flags);
}

}  // namespace cleave::tools
