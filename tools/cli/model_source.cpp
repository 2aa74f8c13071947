// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/model_source.h"

#include <filesystem>
#include <set>
#include <vector>

#include <fmt/ranges.h>

#include "models/convert.h"
#include "models/open_model.h"
#include "models/shapes.h"
#include "planner/file/plan_file.h"
#include "runtime/base/errors.h"
#include "runtime/base/inputs.h"
#include "runtime/base/path_state.h"
#include "runtime/base/suggest.h"
#include "runtime/text/companions.h"
#include "tools/cli/context_limit.h"
#include "tools/cli/terminal.h"

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
    model.graph =
        models::graph_of_shape(shape, stored && dtype_bits(*stored) >= 16 ? *stored : shape.dtype);
    model.max_positions = shape.config.max_positions;
    return model;
}

// Weights, which a plan does not read.
void note_files(const importer::Graph& graph) {
    for (const importer::SourceFile& file : graph.files) note_input(file.path);
}

LoadedModel from_file(const fs::path& path, const ModelFlags& flags) {
    LoadedModel model;
    model.graph = models::open_model(path, {flags.weights == "none"});
    note_files(model.graph);
    model.folder = runtime::place_of_companions(path).string();
    if (model.folder.empty()) model.folder = ".";
    model.max_positions = context_limit(model.graph, model.folder);
    return model;
}

LoadedModel from_plan(const fs::path& path) {
    LoadedModel model;
    model.kind = ModelKind::kPlan;
    model.plan = planner::load_plan(path.string());
    model.graph = model.plan->graph;
    note_files(model.graph);
    if (!model.graph.path.empty())
        model.folder = runtime::place_of_companions(model.graph.path).string();
    model.max_positions = model.plan->workload.context;
    return model;
}

}  // namespace

void make_paths_absolute(importer::Graph& graph) {
    if (!graph.path.empty()) graph.path = fs::absolute(graph.path).string();
    for (importer::SourceFile& file : graph.files) file.path = fs::absolute(file.path).string();
}

void name_weight_folders(const ModelFlags& flags, const planner::Plan& plan) {
    if (fs::path(flags.model).extension() != ".plan" && !planner::is_plan_file(flags.model)) return;
    const fs::path own = real_path(flags.model).parent_path();
    std::set<std::string> folders;
    for (const importer::SourceFile& file : plan.graph.files) {
        const fs::path folder = real_path(file.path).parent_path();
        if (folder != own) folders.insert(folder.string());
    }
    if (!folders.empty()) say("{}: reads weights from {}\n", flags.model, fmt::join(folders, ", "));
}

LoadedModel load_model(const ModelFlags& flags, const std::string& dtype) {
    if (flags.model.empty())
        throw UserError(
            "MODEL is empty: give an .onnx or GGUF file, a folder with one or with safetensors, a "
            ".plan "
            "file or a shape name");
    if (std::optional<models::Shape> shape = models::find_shape(flags.model))
        return from_shape(*shape, dtype);
    const fs::path path = flags.model;
    if (!is_there(path))
        throw UserError("{}: no such file or folder, and no shape name{}; shape names are {}",
                        flags.model, did_you_mean(flags.model, models::shape_names()),
                        fmt::join(models::shape_names(), ", "));
    if (path.extension() == ".plan" || planner::is_plan_file(path.string())) return from_plan(path);
    const fs::path beside = path.has_parent_path() ? path.parent_path() : ".";
    if (path.filename() == "config.json" && flags.weights != "none" &&
        models::is_model_folder(beside))
        return from_file(beside, flags);
    if (path.extension() == ".json")
        return from_shape(models::shape_from_config(path.string()), dtype);
    return from_file(path, flags);
}

}  // namespace cleave::tools
