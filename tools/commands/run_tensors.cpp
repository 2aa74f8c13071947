// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/run_tensors.h"

#include <cctype>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "runtime/base/errors.h"
#include "runtime/base/path_state.h"
#include "runtime/session/session.h"
#include "tools/cli/groups.h"
#include "tools/cli/npy.h"
#include "tools/cli/planning.h"
#include "tools/cli/terminal.h"

namespace cleave::tools {
namespace {

using Json = nlohmann::ordered_json;
using runtime::Tensor;

std::vector<Tensor> read_inputs(const TensorFlags& flags) {
    std::vector<Tensor> inputs;
    for (const std::string& given : flags.tensors) {
        const size_t equals = given.rfind('=');
        if (equals == std::string::npos || equals == 0 || equals + 1 == given.size())
            throw UserError("--tensor {}: give NAME=FILE.npy", given);
        inputs.push_back(read_npy(given.substr(0, equals), given.substr(equals + 1)));
    }
    return inputs;
}

// The tensor's name as a file's: letters, digits, '.', '-' and '_' are kept.
std::string file_of(const std::string& folder, const std::string& name) {
    std::string file = name;
    for (char& c : file)
        if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-') c = '_';
    return (std::filesystem::path(folder) / (file + ".npy")).string();
}

}  // namespace

bool takes_tensors(const importer::Graph& graph) {
    return !graph.outputs.empty() &&
           graph.value(graph.outputs[0]).kind == importer::ValueKind::kTensor;
}

void run_tensors(LoadedModel model, const TensorFlags& flags, const PlanFlags& plan_flags,
                 const RunFlags& run, bool json, runtime::Drivers& drivers) {
    const std::vector<Tensor> inputs = read_inputs(flags);
    if (!flags.output_dir.empty() && !is_folder(flags.output_dir))
        throw UserError("--output-dir {}: no such folder; make it first", flags.output_dir);
    planner::Workload workload =
        model.plan ? model.plan->workload : workload_from_flags(plan_flags, model);
    planner::Plan plan = plan_from_flags(std::move(model), plan_flags, run, workload, drivers);
    Interruptible interruptible;
    runtime::Session session(plan, session_options(run, drivers));
    Json outputs = Json::array();
    for (const Tensor& tensor : session.run_tensors(inputs)) {
        Json entry{
            {"name", tensor.name}, {"dtype", dtype_name(tensor.dtype)}, {"shape", tensor.shape}};
        if (!flags.output_dir.empty()) {
            entry["file"] = file_of(flags.output_dir, tensor.name);
            write_npy(tensor, entry["file"]);
        }
        outputs.push_back(entry);
    }
    if (json) {
        const Json all{{"outputs", outputs},
                       {"transferred_bytes", session.transferred_bytes()},
                       {"peak_memory_bytes", session.peak_memory_bytes()}};
        show_exactly(all.dump(2) + "\n");
        return;
    }
    for (const Json& o : outputs)
        show("{} {} [{}]{}\n", o["name"].get<std::string>(), o["dtype"].get<std::string>(),
             fmt::join(o["shape"].get<std::vector<int64_t>>(), ", "),
             o.contains("file") ? " -> " + o["file"].get<std::string>() : "");
}

void add_tensor_flags(CLI::App& command, TensorFlags& flags) {
    command
        .add_option("--tensor", flags.tensors,
                    "an input of a graph that is no language model; repeated")
        ->type_name("NAME=FILE.npy")
        ->allow_extra_args(false)
        ->group(kForExperts);
    command
        .add_option("--output-dir", flags.output_dir,
                    "folder for such a graph's outputs, NAME.npy each")
        ->type_name("DIR")
        ->group(kForExperts);
}

}  // namespace cleave::tools
