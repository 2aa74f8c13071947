// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "planner/plan/plan_queries.h"
#include "planner/view/plan_text.h"
#include "tools/cli/spelling.h"
#include "tools/inspect/inspection.h"
#include "tools/inspect/inspection_tree.h"

namespace cleave::tools {

using namespace planner;

namespace {

using Json = nlohmann::ordered_json;

double us(int64_t ns) { return static_cast<double>(ns) / 1e3; }

// [begin, end), or null for an empty range.
Json range_json(const Range& range) {
    return range.empty() ? Json() : Json::array({range.begin, range.end});
}

Json layers_json(const Inspection& inspection) {
    Json list = Json::array();
    for (const LayerRun& run : inspection.layers) {
        Json shares = Json::array();
        for (const LayerShare& s : run.shares)
            shares.push_back({{"device", inspection.plan->machine.device(s.device).name},
                              {"query_heads", range_json(s.query_heads)},
                              {"kv_heads", range_json(s.kv_heads)},
                              {"mlp_features", range_json(s.mlp)},
                              {"weights_bytes", s.weight_bytes},
                              {"kv_bytes", s.kv_bytes}});
        list.push_back({{"first_layer", run.first},
                        {"last_layer", run.last},
                        {"stage", run.stage},
                        {"compute_us", us(run.compute_ns)},
                        {"exchange_us", us(run.exchange_ns)},
                        {"devices", shares}});
    }
    return list;
}

Json memory_json(const Inspection& inspection) {
    Json list = Json::array();
    for (size_t d = 0; d < inspection.memory.size(); ++d) {
        Json items = Json::array();
        for (const MemoryItem& item : inspection.memory[d].items)
            items.push_back({{"arena", arena_name(item.arena)},
                             {"what", item.what},
                             {"buffers", item.buffers},
                             {"bytes", item.bytes}});
        list.push_back({{"device", inspection.plan->machine.devices[d].name},
                        {"activations_fullest_in", inspection.memory[d].fullest},
                        {"items", items}});
    }
    return list;
}

Json passes_json(const Inspection& inspection) {
    Json passes = Json::object();
    for (bool is_prefill : {true, false}) {
        const Plan& plan = *inspection.plan;
        Json devices = Json::array();
        for (size_t d = 0; d < plan.machine.devices.size(); ++d) {
            const DeviceTime& t = inspection.time[is_prefill][d];
            devices.push_back({{"device", plan.machine.devices[d].name},
                               {"compute_us", us(t.compute_ns)},
                               {"exchange_us", us(t.exchange_ns)},
                               {"waiting_us", us(t.waiting_ns)}});
        }
        Json starts = Json::array();
        for (const Step& s : plan.phase(is_prefill).steps) starts.push_back(us(s.start_ns));
        passes[is_prefill ? "prefill" : "decode"] = {
            {"num_tokens", pass_point(plan, is_prefill).num_tokens},
            {"predicted_us", us(inspection.pass_ns[is_prefill])},
            {"devices", devices},
            {"start_us", starts}};
    }
    return passes;
}

Json kernels_json(const Inspection& inspection) {
    Json list = Json::array();
    for (const KernelUse& k : inspection.kernels) {
        Json json{{"name", k.name},
                  {"device", inspection.plan->machine.device(k.device).name},
                  {"arch", k.arch},
                  {"phase", k.is_prefill ? "prefill" : "decode"},
                  {"fused", k.fused},
                  {"operators", k.operators},
                  {"launches", k.launches},
                  {"predicted_us", us(k.predicted_ns)},
                  {"bytes", k.bytes},
                  {"grid", k.grid},
                  {"threads", k.threads},
                  {"shared_memory_bytes", k.shared_bytes},
                  {"limit_shared_memory_bytes", k.shared_limit}};
        if (k.is_gpu)
            json["occupancy"] = {{"blocks", k.occupancy.blocks},
                                 {"warps", k.occupancy.warps},
                                 {"most_warps", k.occupancy.most_warps}};
        list.push_back(std::move(json));
    }
    return list;
}

}  // namespace

Json inspection_tree(const Inspection& inspection) {
    Json json;
    json["plan"] = Json::parse(plan_to_json(*inspection.plan, spell_for_command_line));
    json["layers"] = layers_json(inspection);
    json["memory"] = memory_json(inspection);
    json["passes"] = passes_json(inspection);
    json["kernels"] = kernels_json(inspection);
    json["without_kernels"] = inspection.no_kernels;
    if (inspection.measured)
        json["measured"] = measured_json(*inspection.plan, *inspection.measured);
    return json;
}

std::string inspection_json(const Inspection& inspection, int indent, const Inspection* against) {
    Json tree = inspection_tree(inspection);
    if (against) tree["against"] = inspection_tree(*against);
    // Names come from files: what is not UTF-8 in them is replaced, not refused.
    return tree.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace cleave::tools
