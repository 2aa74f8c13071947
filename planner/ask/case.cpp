// SPDX-License-Identifier: Apache-2.0
#include "planner/ask/case.h"

#include <algorithm>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "planner/ask/figures.h"
#include "planner/machine/build_machine.h"
#include "planner/machine/device_names.h"
#include "planner/plan/plan_queries.h"
#include "planner/plan/text_table.h"
#include "planner/plan/used_devices.h"
#include "planner/planner.h"
#include "planner/search/check_options.h"

namespace cleave::planner {
namespace {

std::string all_names(const Machine& machine) {
    std::vector<DeviceId> all;
    for (size_t d = 0; d < machine.devices.size(); ++d) all.emplace_back(d);
    return folded_names(machine, all);
}

bool is_simulated(const Machine& machine) {
    return std::ranges::all_of(machine.devices,
                               [](const DeviceInfo& d) { return d.kind == DeviceKind::kSim; });
}

bool same_device(const DeviceInfo& a, const DeviceInfo& b) {
    return a.name == b.name && a.memory_bytes == b.memory_bytes &&
           a.reserved_bytes == b.reserved_bytes && a.memory_bandwidth == b.memory_bandwidth &&
           a.flops_f16 == b.flops_f16 && a.host == b.host;
}

bool same_links(const Machine& a, const Machine& b) {
    const auto facts = [](const Link& l) {
        return std::tuple(l.from, l.to, l.kind, l.bandwidth, l.latency_ns, l.domain < 0);
    };
    return std::ranges::equal(a.links, b.links, {}, facts, facts);
}

// The catalogue's machine of these names; nothing where `part`, its first devices, is another.
std::optional<Machine> of_catalogue(const std::vector<DeviceSpec>& specs, const Machine& part) {
    if (!is_simulated(part)) return std::nullopt;
    Machine whole;
    try {
        whole = build_machine(specs, {}, nullptr,
                              {.fabric = part.fabric, .sum_skew_ns = part.sum_skew_ns});
    } catch (const UserError&) {
        return std::nullopt;
    }
    if (whole.devices.size() < part.devices.size()) return std::nullopt;
    std::vector<DeviceId> first;
    for (size_t d = 0; d < part.devices.size(); ++d) first.emplace_back(d);
    const Machine again = part_of(whole, first);
    return std::ranges::equal(again.devices, part.devices, same_device) && same_links(again, part)
               ? std::optional(whole)
               : std::nullopt;
}

std::vector<DeviceSpec> specs_of(const Machine& machine, const std::string& more) {
    std::string list;
    for (const DeviceInfo& d : machine.devices) list += (list.empty() ? "" : ",") + d.name;
    if (!more.empty()) list += "," + more;
    return parse_devices(list);
}

// A device more, like `like` and linked as that one is; the pair as its nearest neighbours are.
void add_like(Machine& machine, DeviceId like, const DeviceSpec& spec) {
    const DeviceId fresh(machine.devices.size());
    DeviceInfo device = machine.device(like);
    device.name = spec.text;
    device.index = spec.index;
    device.identity = spec.identity;
    device.pci.clear();
    machine.devices.push_back(device);
    std::vector<Link> links;
    const Link* near = nullptr;
    for (const Link& l : machine.links) {
        if (l.from == like || l.to == like) {
            Link copy = l;
            (l.from == like ? copy.from : copy.to) = fresh;
            links.push_back(copy);
        }
        if (l.from == like && (!near || l.bandwidth > near->bandwidth)) near = &l;
    }
    if (near)
        for (const auto& [from, to] : {std::pair(like, fresh), std::pair(fresh, like)}) {
            Link copy = *near;
            copy.from = from;
            copy.to = to;
            links.push_back(copy);
        }
    machine.links.insert(machine.links.end(), links.begin(), links.end());
    std::ranges::stable_sort(machine.links, {},
                             [](const Link& l) { return std::pair(l.from, l.to); });
}

// What was chosen for the devices and types of the plan is chosen anew for others.
Workload open_workload(const Plan& plan) {
    Workload open = plan.workload;
    open.compute.reset();
    const bool by_default =
        settled_compute(plan.graph, plan.machine, open).compute == plan.workload.compute;
    return by_default ? open : plan.workload;
}

}  // namespace

Case case_of(const Plan& plan) {
    Case asked{plan.graph, plan.machine, open_workload(plan), plan.options};
    if (plan.num_replicas() == 1) return asked;
    std::string others;
    for (int64_t r = 1; r < plan.num_replicas(); ++r)
        for (const DeviceInfo& d : replica_machine(plan, r).devices)
            others += (others.empty() ? "" : ",") + d.name;
    std::optional<Machine> whole = of_catalogue(specs_of(plan.machine, others), plan.machine);
    if (!whole)
        throw UserError(
            "the plan has {} replicas, and not what links them: ask the model with its $devices "
            "instead of the saved plan",
            plan.num_replicas());
    asked.machine = std::move(*whole);
    if (plan.prediction.serving.users > 0 && !plan.options.most_users)
        asked.workload.batch = served_users(plan);
    return asked;
}

Case replica_case(const Plan& plan) {
    Case asked{plan.graph, plan.machine, open_workload(plan), plan.options};
    asked.options.replicas = 1;
    if (row_of(plan.options.objective).fewest_for_load)  // they are found
        asked.options.objective = Objective::kThroughput;
    asked.options.most_users = false;
    asked.options.max_ttft_ns = asked.options.max_tpot_ns = 0;
    return asked;
}

void keep_shape(const Plan& plan, PlanOptions& options) {
    const size_t width = plan.stages.front().devices.size();
    const bool regular =
        std::ranges::all_of(plan.stages, [&](const Stage& s) { return s.devices.size() == width; });
    if (!regular || width * plan.stages.size() != plan.machine.devices.size()) return;
    options.tensor_parallel = static_cast<int>(width);
    options.pipeline_stages = static_cast<int>(plan.stages.size());
}

std::string why_no_context(const Graph& graph, int64_t context) {
    const int64_t most = graph.config.max_positions;
    return most > 0 && context > most
               ? fmt::format("$context {}: the model's positions end at {}", context, most)
               : "";
}

Outcome outcome_of(const Case& asked) {
    Outcome outcome;
    PassControl control;
    control.shapes_beside = false;
    try {
        outcome.plan =
            make_plan(asked.graph, asked.machine, asked.workload, asked.options, control);
    } catch (const DoesNotFit& error) {
        outcome.lacks_memory = true;
        outcome.devices = error.devices();
        outcome.fixes = error.fixes();
        outcome.refusal = lacking(outcome.devices);
    } catch (const UserError& error) {
        outcome.refusal = error.what();
    }
    return outcome;
}

std::string lacking(const std::vector<Deficit>& devices) {
    const auto most = std::ranges::max_element(devices, {}, &Deficit::deficit_bytes);
    if (most == devices.end()) return "does not fit in memory";
    return fmt::format("lacks {} on {}, which has {}", bytes_text(most->deficit_bytes),
                       most->device, bytes_text(most->capacity_bytes));
}

DeviceId find_device(const Machine& machine, const std::string& name) {
    const auto named = [&](const std::string& one) {
        const auto at = std::ranges::find(machine.devices, one, &DeviceInfo::name);
        return at == machine.devices.end() ? DeviceId() : DeviceId(at - machine.devices.begin());
    };
    if (const DeviceId exact = named(name); exact.valid()) return exact;
    const std::vector<DeviceSpec> specs = parse_devices(name);  // "host" is host[0]
    if (specs.size() == 1 && named(specs[0].text).valid()) return named(specs[0].text);
    throw UserError("{}: no device of the plan; it has {}", name, all_names(machine));
}

Machine with_devices(const Machine& machine, const std::string& list) {
    const std::vector<DeviceSpec> added = parse_devices(list);
    for (const DeviceSpec& spec : added)
        if (std::ranges::any_of(machine.devices,
                                [&](const DeviceInfo& d) { return d.name == spec.text; }))
            throw UserError("{} is there already: the plan has {}; name a further one", spec.text,
                            all_names(machine));
    const bool simulated = std::ranges::all_of(
        added, [](const DeviceSpec& spec) { return spec.kind == DeviceKind::kSim; });
    if (simulated && is_simulated(machine)) {
        build_machine(added, {});  // UserError for a model that the catalogue lacks
        if (std::optional<Machine> whole = of_catalogue(specs_of(machine, list), machine))
            return std::move(*whole);
    }
    Machine more = machine;
    for (const DeviceSpec& spec : added) {
        DeviceId like;
        for (size_t d = 0; d < more.devices.size(); ++d) {
            const DeviceInfo& device = more.devices[d];
            if (device.kind == spec.kind &&
                (spec.arch.empty() || spec.arch == device.model || spec.arch == device.arch))
                like = DeviceId(d);
        }
        if (!like.valid())
            throw UserError(
                "{}: the plan has no device of that kind to take its figures and links from; it "
                "has {}. Plan again with it in $devices",
                spec.text, all_names(machine));
        add_like(more, like, spec);
    }
    return more;
}

Machine without_devices(const Machine& machine, const std::string& list) {
    std::set<DeviceId> gone;
    for (const DeviceSpec& spec : parse_devices(list)) gone.insert(find_device(machine, spec.text));
    std::vector<DeviceId> kept;
    for (size_t d = 0; d < machine.devices.size(); ++d)
        if (!gone.contains(DeviceId(d))) kept.emplace_back(d);
    if (kept.empty()) throw UserError("without {} no device is left", list);
    Machine part = part_of(machine, kept);
    part.name = machine.name;
    return part;
}

Machine with_links(Machine machine, const std::string& kind, double factor) {
    std::set<std::string> known;
    std::set<int> domains;
    bool any = false;
    for (Link& link : machine.links) {
        known.emplace(link_kind_name(link.kind));
        if (link_kind_name(link.kind) != kind) continue;
        any = true;
        const auto times = [&](int64_t& rate) {
            rate = static_cast<int64_t>(static_cast<double>(rate) * factor);
            if (rate < 1) rate = 1;
        };
        times(link.bandwidth);
        if (link.exchange_bandwidth > 0) times(link.exchange_bandwidth);
        if (link.domain >= 0 && domains.insert(link.domain).second)
            times(machine.domains[static_cast<size_t>(link.domain)].bandwidth);
    }
    if (!any) {
        std::string text;
        for (const std::string& name : known) text += (text.empty() ? "" : ", ") + name;
        throw UserError("{}: no link of the machine is of that kind; {}", kind,
                        known.empty() ? "it has none" : "it has " + text);
    }
    return machine;
}

}  // namespace cleave::planner
