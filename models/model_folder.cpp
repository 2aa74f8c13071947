// SPDX-License-Identifier: Apache-2.0
#include "models/model_folder.h"

#include <filesystem>
#include <set>

#include "runtime/base/errors.h"
#include "runtime/base/folder.h"
#include "runtime/base/inside.h"
#include "runtime/base/json_file.h"
#include "runtime/base/path_state.h"

namespace cleave::models {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kWhole = "model.safetensors";

std::vector<std::string> safetensors_files(const fs::path& folder) {
    std::vector<std::string> names = names_if_folder(folder);
    std::erase_if(names, [](const std::string& name) {
        return fs::path(name).extension() != ".safetensors";
    });
    return names;
}

// {tensor: file} of the index.
std::map<std::string, std::string> read_index(const fs::path& path) {
    const Json json = read_json(path);
    const auto map = json.is_object() ? json.find("weight_map") : json.end();
    if (map == json.end() || !map->is_object() || map->empty())
        throw UserError("{}: it has no \"weight_map\" of tensors and their files", path.string());
    std::map<std::string, std::string> files;
    for (const auto& [tensor, file] : map->items()) {
        const std::string name = file.is_string() ? file.get<std::string>() : "";
        if (name.empty() || name == "." || name == ".." ||
            name.find_first_of(std::string("/\0", 2)) != std::string::npos)
            throw UserError(
                "{}: tensor '{}' is in {}, which names no file of this folder; shards must be in "
                "the model's folder",
                path.string(), tensor, file.dump());
        files[tensor] = name;
    }
    return files;
}

// A link may point to another file of the folder, not out of it.
void check_inside(const fs::path& folder, const std::string& name) {
    if (!is_inside(folder, folder / name))
        throw UserError(
            "{}: it is a symbolic link out of the folder; give a folder that has the files "
            "themselves (cp -rL makes one)",
            (folder / name).string());
}

}  // namespace

std::string ModelFolder::config() const { return (fs::path(path) / "config.json").string(); }

bool has_safetensors(const std::string& folder) {
    return !safetensors_files(folder).empty() || is_there(fs::path(folder) / kIndex);
}

ModelFolder read_model_folder(const std::string& path) {
    const fs::path folder = path;
    ModelFolder result;
    result.path = path;
    const bool whole = is_there(folder / kWhole);
    std::map<std::string, std::string> index;
    if (whole) {
        result.files = {kWhole};
    } else if (is_there(folder / kIndex)) {
        index = read_index(folder / kIndex);
        std::set<std::string> names;
        for (const auto& [tensor, file] : index) names.insert(file);
        result.files.assign(names.begin(), names.end());
    } else {
        result.files = safetensors_files(folder);
        if (result.files.size() != 1)
            throw UserError(
                "{}: the folder has {} .safetensors files, but neither {} nor {}; download the "
                "missing one",
                path, result.files.size(), kWhole, kIndex);
    }
    for (size_t i = 0; i < result.files.size(); ++i) {
        const std::string& name = result.files[i];
        const fs::path file = folder / name;
        if (!is_there(file))
            throw UserError("{}: {} names this file, but it is absent; download it", file.string(),
                            kIndex);
        check_inside(folder, name);
        for (StoredTensor& tensor : read_safetensors(file.string()).tensors) {
            const auto listed = index.find(tensor.name);
            if (!index.empty() && (listed == index.end() || listed->second != name))
                throw UserError(
                    "{}: tensor '{}' is in this file, but not by {}; the files are of different "
                    "revisions: download them again",
                    file.string(), tensor.name, kIndex);
            const std::string key = tensor.name;
            result.tensors[key] = {i, std::move(tensor)};
        }
    }
    for (const auto& [tensor, file] : index)
        if (!result.tensors.contains(tensor))
            throw UserError(
                "{}: tensor '{}' is missing, which {} puts there; the files are of different "
                "revisions: download them again",
                (folder / file).string(), tensor, kIndex);
    return result;
}

}  // namespace cleave::models
