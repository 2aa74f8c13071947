// SPDX-License-Identifier: Apache-2.0
#include "planner/search/affinity_pins.h"

#include <map>
#include <set>

#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

// The machine's device that an affinity means; empty where it has none.
std::string device_of(const importer::NodeAffinity& a, const Machine& machine) {
    for (const DeviceInfo& d : machine.devices)
        if (d.name == a.device) return d.name;
    auto devices = static_cast<int>(machine.devices.size());
    return a.position >= 0 && a.position < devices ? machine.devices[a.position].name
                                                   : std::string();
}

// The device of an operator: what its nodes agree on; empty where none says anything.
std::string device_of(const importer::Op& op, const std::map<std::string, std::string>& of_node,
                      const std::string& path) {
    std::string device, node;
    for (const std::string& name : op.onnx_nodes) {
        auto at = of_node.find(name);
        if (at == of_node.end()) continue;
        if (!device.empty() && device != at->second)
            throw UserError(
                "{}: operator '{}' is made of nodes that the file puts on several devices: '{}' on "
                "{}, '{}' on {}. Annotate them alike, or leave out the file's affinities with "
                "$ignore_affinities and give $pins",
                path, op.name, node, device, name, at->second);
        device = at->second;
        node = name;
    }
    return device;
}

std::string layers_text(int first, int last) {
    return first == last ? fmt::format("layers.{}", first)
                         : fmt::format("layers.{}-{}", first, last);
}

}  // namespace

AffinityPins pins_from_affinities(const Graph& graph, const importer::Affinities& affinities,
                                  const Machine& machine) {
    AffinityPins result;
    std::map<std::string, std::string> of_node;
    for (const importer::NodeAffinity& a : affinities.nodes) {
        std::string device = device_of(a, machine);
        if (device.empty()) {
            result.left_out = fmt::format(
                "node '{}' is to run on {}, and there {} {}", a.node,
                a.device.empty() ? fmt::format("device {}", a.position) : a.device,
                machine.devices.size() == 1 ? "is only" : "are only",
                machine.devices.size() == 1 ? machine.devices[0].name
                                            : fmt::format("{} devices", machine.devices.size()));
            return result;
        }
        of_node[a.node] = std::move(device);
    }
    std::vector<std::string> of_op;
    std::map<int, std::set<std::string>> of_layer;
    for (const importer::Op& op : graph.ops) {
        of_op.push_back(device_of(op, of_node, affinities.path));
        if (op.layer >= 0 && !of_op.back().empty()) of_layer[op.layer].insert(of_op.back());
    }
    int run_first = -1, run_last = -1;
    auto end_run = [&] {
        if (run_first >= 0)
            result.pins.push_back({layers_text(run_first, run_last), *of_layer[run_first].begin()});
        run_first = -1;
    };
    auto layers = static_cast<int>(graph.config.num_layers);
    for (int layer = 0; layer < layers; ++layer) {
        auto at = of_layer.find(layer);
        bool whole = at != of_layer.end() && at->second.size() == 1;
        if (!whole || (run_first >= 0 && of_layer[run_first] != at->second)) end_run();
        if (!whole) continue;
        if (run_first < 0) run_first = layer;
        run_last = layer;
    }
    end_run();
    for (size_t i = 0; i < graph.ops.size(); ++i) {
        int layer = graph.ops[i].layer;
        bool in_run = layer >= 0 && layer < layers && of_layer[layer].size() == 1;
        if (!of_op[i].empty() && !in_run) result.pins.push_back({graph.ops[i].name, of_op[i]});
    }
    return result;
}

}  // namespace cleave::planner
