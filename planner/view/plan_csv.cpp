// SPDX-License-Identifier: Apache-2.0
#include "planner/view/plan_csv.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/ask/basis.h"
#include "planner/plan/plan_queries.h"
#include "planner/plan/used_devices.h"
#include "planner/view/csv.h"
#include "planner/view/step_words.h"

namespace cleave::planner {
namespace {

double in_us(int64_t ns) { return static_cast<double>(ns) / 1e3; }

// Lists are in one cell, their elements a space apart.
template <class Items, class Text>
std::string joined(const Items& items, Text text) {
    std::string all;
    for (const auto& item : items) all += (all.empty() ? "" : " ") + text(item);
    return all;
}

bool in_one_node(const Plan& plan, const std::vector<DeviceId>& devices) {
    const std::string& host = plan.machine.device(devices.front()).host;
    return std::ranges::all_of(devices,
                               [&](DeviceId d) { return plan.machine.device(d).host == host; });
}

std::string device_rows(const Plan& all) {
    CsvTable table({"replica", "device", "kind", "arch", "host", "stages", "layers", "memory_bytes",
                    "weights_bytes", "kv_bytes", "activation_bytes", "staging_bytes",
                    "scratch_bytes", "collectives_bytes", "reserved_bytes", "free_bytes",
                    "decode_busy_us", "network", "basis"});
    for (int64_t replica = 0; replica < all.num_replicas(); ++replica) {
        const Plan& plan = find_replica(all, replica).make;
        const Machine& machine = replica_machine(all, replica);
        const auto& busy = plan.prediction.decode_busy_ns;
        const Grounds grounds = grounds_of(plan);
        for (const DeviceMemory& m : plan.memory) {
            const DeviceInfo& d = machine.device(m.device);
            std::vector<std::string> stages, layers;
            for (size_t i = 0; i < plan.stages.size(); ++i) {
                const Stage& s = plan.stages[i];
                if (std::ranges::find(s.devices, m.device) == s.devices.end()) continue;
                stages.push_back(std::to_string(i));
                if (s.first_layer <= s.last_layer)
                    layers.push_back(fmt::format("{}-{}", s.first_layer, s.last_layer));
            }
            const size_t at = m.device.index();
            table.row({replica, d.name, device_kind_name(d.kind), d.arch, d.host,
                       fmt::format("{}", fmt::join(stages, " ")),
                       fmt::format("{}", fmt::join(layers, " ")), m.capacity, m.weights, m.kv,
                       m.activations, m.staging, m.scratch, m.collectives, m.reserved, m.free(),
                       at < busy.size() ? CsvCell(in_us(busy[at])) : CsvCell(),
                       network_text(grounds), class_names(grounds)});
        }
    }
    return table.text();
}

std::string step_rows(const Plan& plan) {
    CsvTable table({"phase", "id", "kind", "what", "implementation", "layer", "stage", "devices",
                    "source", "destination", "value", "operators", "bytes", "link_bytes",
                    "start_us", "predicted_us", "network"});
    const std::string network = network_text(grounds_of(plan));
    for (bool is_prefill : {true, false}) {
        const Phase& phase = plan.phase(is_prefill);
        const PassPoint point = pass_point(plan, is_prefill);
        const auto name = [&](DeviceId d) { return plan.machine.device(d).name; };
        for (size_t i = 0; i < phase.steps.size(); ++i) {
            const Step& s = phase.steps[i];
            const ValueId value = step_value(plan, phase, s);
            const Transfer* t = s.transfer();
            const std::vector<DeviceId> devices = step_devices(phase, s);
            const std::vector<OpId> none;
            const std::vector<OpId>& ops = s.compute()      ? s.compute()->ops
                                           : s.collective() ? s.collective()->epilogue
                                                            : none;
            const auto end_of = [&](PlacedId id) { return name(phase.values[id.index()].device); };
            table.row({is_prefill ? "prefill" : "decode", i, step_kind(s),
                       step_words(plan.graph, s), step_implementation(plan, phase, s), s.layer,
                       s.stage, joined(devices, name), t ? CsvCell(end_of(t->source)) : CsvCell(),
                       t ? CsvCell(end_of(t->destination)) : CsvCell(),
                       value.valid() ? CsvCell(plan.graph.value(value).name) : CsvCell(),
                       joined(ops, [&](OpId id) { return plan.graph.op(id).name; }),
                       step_bytes(s, point), s.link_bytes.at(point), in_us(s.start_ns),
                       in_us(s.predicted_ns), in_one_node(plan, devices) ? "" : network});
        }
    }
    return table.text();
}

std::string link_rows(const Plan& plan) {
    CsvTable table({"from", "to", "kind", "gb_per_s", "latency_us", "bytes_per_token", "network"});
    LinkTraffic traffic = link_traffic(plan, false);
    const std::string network = network_text(grounds_of(plan));
    const auto batch = static_cast<double>(plan.workload.batch);
    const auto name = [&](DeviceId d) { return plan.machine.device(d).name; };
    for (const Link& l : plan.machine.links) {
        const auto found = traffic.find({l.from, l.to});
        const double bytes =
            found == traffic.end() ? 0.0 : static_cast<double>(found->second) / batch;
        if (found != traffic.end()) traffic.erase(found);
        table.row({name(l.from), name(l.to), link_kind_name(l.kind),
                   static_cast<double>(l.bandwidth) / 1e9, in_us(l.latency_ns), bytes,
                   in_one_node(plan, {l.from, l.to}) ? "" : network});
    }
    for (const auto& [pair, bytes] : traffic)
        table.row({name(pair.first),
                   name(pair.second),
                   "host_staged",
                   {},
                   {},
                   static_cast<double>(bytes) / batch,
                   in_one_node(plan, {pair.first, pair.second}) ? "" : network});
    return table.text();
}

}  // namespace

std::vector<NamedTable> plan_tables(const Plan& plan) {
    return {{"devices", device_rows(plan)}, {"steps", step_rows(plan)}, {"links", link_rows(plan)}};
}

}  // namespace cleave::planner
