// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/model_source.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>
#include <vector>

#include <fmt/ranges.h>

#include "importer/onnx/import.h"
#include "models/convert.h"
#include "models/gguf_model.h"
#include "models/model_folder.h"
#include "models/shapes.h"
#include "planner/file/plan_file.h"
#include "runtime/base/errors.h"
#include "runtime/base/gguf.h"
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

LoadedModel from_onnx(const fs::path& path, const ModelFlags& flags) {
    LoadedModel model;
    model.graph = importer::import_onnx(path.string(), {flags.weights == "none"});
    fs::path folder = fs::is_directory(path) ? path : path.parent_path();
    model.folder = folder.empty() ? "." : folder.string();
    model.max_positions = context_limit(model.graph, model.folder);
    return model;
}

LoadedModel from_folder(const fs::path& folder) {
    LoadedModel model;
    model.folder = folder.empty() ? "." : folder.string();
    model.graph = models::import_folder(model.folder);
    model.max_positions = context_limit(model.graph, model.folder);
    return model;
}

LoadedModel from_gguf(const fs::path& path) {
    LoadedModel model;
    model.graph = models::import_gguf(path.string());
    model.folder = path.string();
    model.max_positions = model.graph.config.max_positions;
    return model;
}

// A folder with weights as Hugging Face has them, and no ONNX file.
bool is_hugging_face(const fs::path& folder) {
    std::error_code error;
    if (!fs::is_directory(folder, error) || !models::has_safetensors(folder.string())) return false;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
        if (entry.path().extension() == ".onnx") return false;
    return true;
}

// What a file is that is neither ONNX nor a plan, and the way on; empty: nothing that is known.
std::string known_as(const fs::path& file) {
    const std::string type = file.extension().string();
    std::error_code error;
    if (!fs::is_regular_file(file, error)) return {};  // a pipe would wait for a writer
    char magic[4] = {};
    std::ifstream(file, std::ios::binary).read(magic, sizeof(magic));
    const std::string_view begins(magic, sizeof(magic));
    if (type == ".safetensors")
        return "weights of a Hugging Face folder; give the folder, which has config.json, too";
    if (begins == "GGUF") return "a GGUF file; name the file itself";
    if (type == ".gguf") return "no GGUF file, whatever its name says; download it again";
    if (type == ".bin" || type == ".pt" || type == ".pth" || type == ".ckpt")
        return "a PyTorch checkpoint, which is not supported: reading one runs code of its "
               "author's; give a folder of safetensors (save_pretrained of transformers writes "
               "one)";
    if (type == ".h5" || type == ".keras" || type == ".msgpack" || type == ".tflite")
        return "a file of TensorFlow or Flax, which is not supported; give an .onnx file or a "
               "folder of safetensors";
    return {};
}

// A folder without ONNX file and safetensors is named for what it has, and so is a file.
void refuse_what_is_no_model(const fs::path& path) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
        if (const std::string what = known_as(path); !what.empty())
            throw UserError("{}: this is {}", path.string(), what);
        return;
    }
    std::vector<fs::path> files;
    for (const fs::directory_entry& entry : fs::directory_iterator(path, error))
        files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files)
        if (file.extension() == ".onnx") return;
    for (const fs::path& file : files)
        if (const std::string what = known_as(file); !what.empty())
            throw UserError("{}: neither an .onnx file nor safetensors are in the folder; {} is {}",
                            path.string(), file.filename().string(), what);
    if (fs::exists(path / "config.json", error))
        throw UserError(
            "{}: the folder has config.json, but no weights; download its .safetensors files, or "
            "plan without weights by its config.json",
            path.string());
}

LoadedModel from_plan(const fs::path& path) {
    LoadedModel model;
    model.kind = ModelKind::kPlan;
    model.plan = planner::load_plan(path.string());
    model.graph = model.plan->graph;
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
    std::error_code error;
    const fs::path own = fs::weakly_canonical(flags.model, error).parent_path();
    std::set<std::string> folders;
    for (const importer::SourceFile& file : plan.graph.files) {
        const fs::path folder = fs::weakly_canonical(file.path, error).parent_path();
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
    std::error_code error;
    if (!fs::exists(path, error))
        throw UserError("{}: no such file or folder, and no shape name{}; shape names are {}",
                        flags.model, did_you_mean(flags.model, models::shape_names()),
                        fmt::join(models::shape_names(), ", "));
    if (path.extension() == ".plan" || planner::is_plan_file(path.string())) return from_plan(path);
    if (fs::is_regular_file(path, error) && is_gguf(path.string())) return from_gguf(path);
    if (is_hugging_face(path)) return from_folder(path);
    if (path.filename() == "config.json" && flags.weights != "none" &&
        models::has_safetensors(path.has_parent_path() ? path.parent_path().string() : "."))
        return from_folder(path.parent_path());
    if (path.extension() == ".json")
        return from_shape(models::shape_from_config(path.string()), dtype);
    refuse_what_is_no_model(path);
    return from_onnx(path, flags);
}

}  // namespace cleave::tools
