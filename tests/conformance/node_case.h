// SPDX-License-Identifier: Apache-2.0
// One case of the ONNX standard's own tests: a model, its inputs, and the outputs that the
// standard's reference gives. In: a folder with model.onnx and test_data_set_0. Out: tensors, and
// what Cleave makes of them through import, plan, compile and run.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "importer/graph/graph.h"
#include "planner/planner.h"
#include "runtime/session/session.h"

namespace onnx {
class ModelProto;
}

namespace cleave::test {

struct NodeCase {
    std::vector<runtime::Tensor> inputs, outputs;  // in the graph's order, by its names
};

// Every case below `folder`, by name.
std::vector<std::string> node_case_names(const std::filesystem::path& folder);

NodeCase load_node_case(const std::filesystem::path& folder, const std::string& name);

planner::Plan plan_tensors(const importer::Graph& graph, const std::string& devices = "host[0]",
                           const planner::PlanOptions& options = {});

// Runs the case from its file to the bytes of its outputs, with kernels for the LLVM CPU `cpu` or,
// empty, this machine's. "" when they are the standard's, else the first difference. Throws
// whatever a user would meet.
std::string run_node_case(const std::filesystem::path& folder, const std::string& name,
                          const std::string& cpu = "");

// The first place where `got` is not what was expected, or nothing. Integers must be equal; reals
// within the bound of their type: f32 1e-5 of the value (the standard's own tests allow 1e-3), f16
// and bf16 their rounding.
std::string first_difference(const runtime::Tensor& got, const runtime::Tensor& expected);

// Its elements as f64; integers too.
std::vector<double> elements_of(const runtime::Tensor& tensor);

}  // namespace cleave::test
