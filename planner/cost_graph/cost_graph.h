// SPDX-License-Identifier: Apache-2.0
// Plans of bare cost graphs, without a model: nodes with a latency on an accelerator and on a CPU,
// a size and a class (one class, one device), edges with a cost to move the source's output. The
// format and the objective (max-load, the time per sample of a full pipeline) are those of
// "Efficient Algorithms for Device Placement of DNN Graph Operators" (Tarnawski et al., NeurIPS
// 2020). What `cleave plan --cost-graph` runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cleave::planner {

struct CostNode {
    int64_t id = 0;
    std::string name;
    double cpu_latency = 0, accelerator_latency = 0;  // ms
    double size = 0;                                  // bytes
    double output_cost = 0;  // ms to move its output, once for each device that reads it
    int64_t color_class = 0;
    bool on_accelerator = true;  // supported there
};

struct CostGraph {
    std::string path;
    std::vector<CostNode> nodes;
    std::vector<std::pair<int, int>> edges;  // positions in `nodes`
    double accelerator_memory = 0;           // bytes of each
    int num_accelerators = 0, num_cpus = 0;
};

// Reads the JSON format. UserError names the file, node or edge and the field.
CostGraph load_cost_graph(const std::string& path);

struct CostGraphOptions {
    bool contiguous = true;          // devices can be ordered so that every edge goes forward
    double time_limit_seconds = 10;  // of the non-contiguous search
    bool use_metis = true;
    int64_t seed = 0;
};

struct CostGraphPlan {
    double max_load = 0, lower_bound = 0;  // ms
    std::vector<int> device;  // by node: accelerators from 0, CPUs from num_accelerators
    bool contiguous = true;
    bool exact = false;  // proven optimal among contiguous plans
    double plan_ms = 0;
    std::string why;  // which order or search gave it, what METIS brought

    double gap() const { return lower_bound > 0 ? max_load / lower_bound - 1 : 0; }
};

// Never worse in non-contiguous mode than the contiguous plan. UserError when no device can take a
// class.
CostGraphPlan plan_cost_graph(const CostGraph& graph, const CostGraphOptions& options);

// The max-load of an assignment, from its definition; what plans are checked with.
double max_load(const CostGraph& graph, const std::vector<int>& device);

// CLI.md's result: {"max_load", "lower_bound", "gap", "contiguous", "assignment", "plan_ms"}.
std::string cost_graph_plan_to_json(const CostGraph& graph, const CostGraphPlan& plan);

}  // namespace cleave::planner
