// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <map>

#include <nlohmann/json.hpp>

#include "planner/cost_graph/cost_graph.h"
#include "runtime/base/errors.h"
#include "runtime/base/json_file.h"

namespace cleave::planner {
namespace {

using nlohmann::json;

double number(const json& object, const char* key, const std::string& path,
              const std::string& where) {
    if (!object.is_object() || !object.contains(key))
        throw UserError("{}: {} lacks the field '{}'", path, where, key);
    const json& v = object[key];
    // The instances write flags as true, 1 or 1.0.
    if (v.is_boolean()) return v.get<bool>() ? 1 : 0;
    if (!v.is_number()) throw UserError("{}: {}.{} is no number", path, where, key);
    double d = v.get<double>();
    // Sums of thousands stay within 64 bits.
    constexpr double kMost = 1e15;
    if (!std::isfinite(d) || d < 0 || d > kMost)
        throw UserError("{}: {}.{} is {}; it must be finite and not negative, and {} at most", path,
                        where, key, d, kMost);
    return d;
}

int count(const json& object, const char* key, const std::string& path) {
    double d = number(object, key, path, "the graph");
    if (d != std::floor(d) || d > 4096)
        throw UserError("{}: {} is {}; it must be a whole number up to 4096", path, key, d);
    return static_cast<int>(d);
}

const json& array_of(const json& object, const char* key, const std::string& path) {
    if (!object.contains(key) || !object[key].is_array())
        throw UserError("{}: the graph lacks the array '{}'", path, key);
    return object[key];
}

CostNode read_node(const json& n, const std::string& path, size_t index) {
    std::string where = fmt::format("nodes[{}]", index);
    CostNode node;
    if (!n.is_object() || !n.contains("id") || !n["id"].is_number_integer())
        throw UserError("{}: {} lacks a whole number 'id'", path, where);
    node.id = n["id"].get<int64_t>();
    if (n.contains("name") && n["name"].is_string()) node.name = n["name"].get<std::string>();
    node.cpu_latency = number(n, "cpuLatency", path, where);
    node.accelerator_latency = number(n, "fpgaLatency", path, where);
    node.size = number(n, "size", path, where);
    node.on_accelerator = number(n, "supportedOnFpga", path, where) != 0;
    // Nodes without a class are classes of their own, apart from all that are named.
    if (n.contains("colorClass") && n["colorClass"].is_number())
        node.color_class = n["colorClass"].get<int64_t>();
    else
        node.color_class = INT64_MIN + static_cast<int64_t>(index);
    return node;
}

}  // namespace

CostGraph load_cost_graph(const std::string& path) {
    const json root = read_json(path);
    if (!root.is_object()) throw UserError("{}: the cost graph is no JSON object", path);
    CostGraph graph;
    graph.path = path;
    graph.accelerator_memory = number(root, "maxSizePerFPGA", path, "the graph");
    graph.num_accelerators = count(root, "maxFPGAs", path);
    graph.num_cpus = count(root, "maxCPUs", path);
    if (graph.num_accelerators + graph.num_cpus == 0)
        throw UserError("{}: maxFPGAs and maxCPUs are both 0; there is nothing to plan for", path);
    std::map<int64_t, int> position;
    size_t index = 0;
    for (const json& n : array_of(root, "nodes", path)) {
        graph.nodes.push_back(read_node(n, path, index));
        if (!position.try_emplace(graph.nodes.back().id, static_cast<int>(index)).second)
            throw UserError("{}: two nodes have the id {}", path, graph.nodes.back().id);
        ++index;
    }
    if (graph.nodes.empty()) throw UserError("{}: the cost graph has no nodes", path);
    index = 0;
    for (const json& e : array_of(root, "edges", path)) {
        std::string where = fmt::format("edges[{}]", index++);
        auto end = [&](const char* key) {
            auto at = position.find(static_cast<int64_t>(number(e, key, path, where)));
            if (at == position.end()) throw UserError("{}: {}.{} names no node", path, where, key);
            return at->second;
        };
        int from = end("sourceId"), to = end("destId");
        graph.nodes[from].output_cost =
            std::max(graph.nodes[from].output_cost, number(e, "cost", path, where));
        graph.edges.emplace_back(from, to);
    }
    return graph;
}

}  // namespace cleave::planner
