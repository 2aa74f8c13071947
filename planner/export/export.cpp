// SPDX-License-Identifier: Apache-2.0
#include "planner/export/export.h"

#include <filesystem>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "planner/export/formats.h"
#include "runtime/base/errors.h"
#include "runtime/base/file_set.h"

namespace cleave::planner {
namespace {

namespace fs = std::filesystem;

constexpr Exporter kExporters[] = {
    {"text", "the plan as text, with every step", export_text, true},
    {"json", "the plan as JSON (tools/schema/plan.schema.json)", export_json, true},
    {"dot", "the steps of a token as a graph for Graphviz, a cluster for each device", export_dot},
    {"vllm", "environment and flags of vllm serve: VLLM_PP_LAYER_PARTITION, sizes", export_vllm,
     true, true},
    {"llama.cpp", "flags of llama-server: -dev -ts -sm -ngl -ot", export_llama_cpp, true},
    {"accelerate", "a device_map of Hugging Face accelerate", export_accelerate, false, true},
};

constexpr const char* kManifest = "manifest.json";

// Names come from exporters, but also from node names: none may leave the folder.
void check_names(const ExportResult& result) {
    std::set<std::string> seen{kManifest};
    for (const ExportFile& file : result.files) {
        const fs::path path(file.name);
        const fs::path normal = path.lexically_normal();
        CLEAVE_CHECK(!file.name.empty() && path.is_relative() && *normal.begin() != "..")
            << "an exported file named " << file.name;
        CLEAVE_CHECK(seen.insert(normal.generic_string()).second)
            << "two exported files " << file.name;
    }
}

}  // namespace

ExportResult export_plan(const Exporter& exporter, const Plan& plan) {
    ExportResult result = exporter.run(plan);
    if (!plan.copies.empty() && !exporter.replicas)
        result.not_expressed.push_back(fmt::format(
            "The plan has {} replicas that are alike, and this is the first: run it once more for "
            "the devices of each other one.",
            plan.num_alike()));
    if (!plan.others.empty() && !exporter.replicas)
        result.not_expressed.push_back(fmt::format(
            "Of the plan's {} replicas, {} on other devices are of another make: plan for those "
            "devices by themselves, and export that.",
            plan.num_replicas(), plan.num_replicas() - plan.num_alike()));
    if (plan.workload.compute == ComputeMode::kFast)
        result.not_expressed.push_back(
            "The plan computes fast, with rounded activations on hosts; what runs the export has "
            "an arithmetic of its own.");
    return result;
}

std::span<const Exporter> plan_exporters() { return kExporters; }

const Exporter& find_exporter(std::span<const Exporter> exporters, std::string_view name) {
    std::string known;
    for (const Exporter& exporter : exporters) {
        if (exporter.name == name) return exporter;
        known += (known.empty() ? "" : ", ") + std::string(exporter.name);
    }
    throw UserError("$format {}: no such format; formats are {}", name, known);
}

std::string export_manifest(std::string_view format, const ExportResult& result) {
    using Json = nlohmann::ordered_json;
    Json json{{"format", format},
              {"files", Json::array()},
              {"commands", result.commands},
              {"not_expressed", result.not_expressed}};
    for (const ExportFile& file : result.files) json["files"].push_back(file.name);
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

void write_export(std::string_view format, const ExportResult& result, const std::string& folder) {
    check_names(result);
    const fs::path root(folder);
    FileSet files;
    files.make_folder(root);
    for (const ExportFile& file : result.files) {
        const fs::path path = root / file.name;
        files.make_folder(path.parent_path());
        files.add(path, [&](std::ostream& to) {
            if (file.write)
                file.write(to);
            else
                to << file.contents;
        });
    }
    files.add(root / kManifest, [&](std::ostream& to) { to << export_manifest(format, result); });
    files.commit();
}

}  // namespace cleave::planner
