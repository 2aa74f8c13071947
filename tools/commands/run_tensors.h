// SPDX-License-Identifier: Apache-2.0
// `cleave run` of a graph that takes and gives tensors: .npy files in, .npy files out.
#pragma once

#include <string>
#include <vector>

#include "runtime/cards/drivers.h"
#include "tools/cli/model_source.h"
#include "tools/cli/options.h"

namespace cleave::tools {

struct TensorFlags {
    std::vector<std::string> tensors;  // NAME=FILE.npy
    std::string output_dir;
    bool given() const { return !tensors.empty() || !output_dir.empty(); }
};

void add_tensor_flags(CLI::App& command, TensorFlags& flags);

bool takes_tensors(const importer::Graph& graph);

void run_tensors(LoadedModel model, const TensorFlags& flags, const PlanFlags& plan,
                 const RunFlags& run, bool json, runtime::Drivers& drivers);

}  // namespace cleave::tools
