// SPDX-License-Identifier: Apache-2.0
#include "planner/search/baselines.h"

#include <algorithm>
#include <optional>

#include "planner/plan/foreign_op.h"
#include "planner/search/cost_tables.h"
#include "planner/search/device_order.h"
#include "planner/search/propose.h"

namespace cleave::planner {
namespace {

// First unit of each layer, then the end of the last one; units before and behind belong to the
// outer layers.
std::vector<int> layer_starts(const Analysis& a) {
    std::vector<int> starts;
    int layer = -1;
    for (size_t u = 0; u < a.units.size(); ++u)
        if (a.units[u].first_layer >= 0 && a.units[u].first_layer != layer) {
            layer = a.units[u].first_layer;
            starts.push_back(static_cast<int>(u));
        }
    if (starts.empty())  // no layers: every unit counts as one
        for (size_t u = 0; u < a.units.size(); ++u) starts.push_back(static_cast<int>(u));
    return starts;
}

StageChoice stage_of(const Analysis& a, int first_device, int count, int first_unit,
                     int last_unit) {
    StageChoice stage;
    for (int i = 0; i < count; ++i) stage.devices.push_back(DeviceId(first_device + i));
    stage.shares.weights.assign(count, 1);
    // Whole KV groups as long as there is one for each device; a head's replicas otherwise.
    int64_t kv_heads = a.graph.config.num_kv_heads;
    stage.shares.whole_groups = kv_heads >= count;
    stage.begin = a.units[first_unit].begin;
    stage.end = a.units[last_unit - 1].end;
    return stage;
}

int num_layers(const Analysis& a) { return static_cast<int>(layer_starts(a).size()); }

bool may_split(const Analysis& a) {
    return std::none_of(a.graph.ops.begin(), a.graph.ops.end(), stays_on_one_device);
}

// Devices of a node: the size of the groups that the links suggest, where they are of one size.
int node_size(const Machine& machine) {
    auto devices = static_cast<int>(machine.devices.size());
    int groups = natural_group_count(machine);
    return devices % groups == 0 ? devices / groups : devices;
}

std::optional<Placement> greedy_fill(const Analysis& a, const Machine& machine,
                                     const Workload& workload) {
    CostTables tables(a, machine, workload, user_order(machine), 0);
    std::vector<int> starts = layer_starts(a);
    auto units = static_cast<int>(a.units.size());
    Placement placement;
    int from = 0;
    for (int d = 0; d < tables.num_devices() && from < units; ++d) {
        const RangeTable& range = tables.range(d, 1, ShareMode::kBySpeed);
        int to = from;
        for (size_t layer = 1; layer <= starts.size(); ++layer) {
            int end = layer == starts.size() ? units : starts[layer];
            if (end > from && range.fits(from, end)) to = end;
        }
        // Before the first layer and behind the last one a device may hold less than a layer.
        while (to == from && to < units && range.fits(from, to + 1) &&
               (a.units[to].first_layer < 0 || starts.empty()))
            ++to;
        if (to == from) continue;
        placement.stages.push_back(stage_of(a, d, 1, from, to));
        from = to;
    }
    if (from < units) return std::nullopt;
    return placement;
}

}  // namespace

Placement equal_layers(const Analysis& analysis, int tensor_parallel, int pipeline_stages) {
    std::vector<int> starts = layer_starts(analysis);
    auto layers = static_cast<int64_t>(starts.size());
    Placement placement;
    for (int64_t s = 0; s < pipeline_stages; ++s) {
        int64_t first = s * layers / pipeline_stages, last = (s + 1) * layers / pipeline_stages;
        int begin = s == 0 ? 0 : starts[first];
        int end = last == layers ? static_cast<int>(analysis.units.size()) : starts[last];
        placement.stages.push_back(
            stage_of(analysis, static_cast<int>(s) * tensor_parallel, tensor_parallel, begin, end));
    }
    return placement;
}

std::vector<Baseline> baselines(const Analysis& analysis, const Machine& machine,
                                const Workload& workload) {
    std::vector<Baseline> found;
    auto add = [&](const char* rule, Placement placement) {
        std::string shape = shape_name(placement);
        found.push_back({rule, std::move(shape), std::move(placement)});
    };
    auto devices = static_cast<int>(machine.devices.size());
    int layers = num_layers(analysis);
    add("equal layers", equal_layers(analysis, 1, std::min(devices, layers)));
    if (int node = node_size(machine); may_split(analysis) && devices / node <= layers)
        add("megatron", equal_layers(analysis, node, devices / node));
    if (auto filled = greedy_fill(analysis, machine, workload)) add("greedy fill", *filled);
    for (int used = 1; used <= devices; ++used) {
        if (devices % used != 0) continue;
        for (int tp = 1; tp <= (may_split(analysis) ? used : 1); ++tp)
            if (used % tp == 0 && used / tp <= layers)
                add("uniform grid", equal_layers(analysis, tp, used / tp));
    }
    return found;
}

}  // namespace cleave::planner
