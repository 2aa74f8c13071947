// SPDX-License-Identifier: Apache-2.0
#include "planner/cost_graph/cost_graph.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>

#include "planner/cost_graph/annealing.h"
#include "planner/cost_graph/contiguous.h"
#include "planner/metis/metis.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

using cost_graph::Assignment;
using cost_graph::Pieces;

constexpr size_t kMaxIdeals = 120'000;

// Work that must be done somewhere: accelerators at full load, and the CPUs take, in the time of
// the bound, what saves most of it. No exchange counted, so it holds for every plan.
double work_bound(const CostGraph& graph, const Pieces& p) {
    std::vector<int> order(p.count);
    std::iota(order.begin(), order.end(), 0);
    auto ratio = [&](int i) { return p.cpu[i] > 0 ? p.accelerator[i] / p.cpu[i] : INFINITY; };
    std::sort(order.begin(), order.end(),
              [&](int a, int b) { return std::pair(-ratio(a), a) < std::pair(-ratio(b), b); });
    double low = 0, high = 0;
    for (int i = 0; i < p.count; ++i)
        high += std::isfinite(p.accelerator[i]) ? p.accelerator[i] : p.cpu[i];
    auto feasible = [&](double load) {
        double room = load * graph.num_cpus, left = 0;
        for (int i : order) {
            if (!std::isfinite(p.accelerator[i]))
                room -= p.cpu[i];
            else if (p.cpu[i] <= room && graph.num_cpus > 0)
                room -= p.cpu[i];
            else if (room > 0 && p.cpu[i] > 0)
                left += p.accelerator[i] * (1 - room / p.cpu[i]), room = 0;
            else
                left += p.accelerator[i];
        }
        return room >= -1e-9 && left <= load * graph.num_accelerators + 1e-12;
    };
    for (int i = 0; i < 60; ++i) {
        double middle = (low + high) / 2;
        (feasible(middle) ? high : low) = middle;
    }
    // The heaviest piece stands whole on some device.
    for (int i = 0; i < p.count; ++i) {
        double fastest = graph.num_accelerators > 0 && p.size[i] <= graph.accelerator_memory
                             ? p.accelerator[i]
                             : INFINITY;
        if (graph.num_cpus > 0) fastest = std::min(fastest, p.cpu[i]);
        if (std::isfinite(fastest)) low = std::max(low, fastest);
    }
    return low;
}

std::optional<Assignment> best_contiguous(const CostGraph& graph, const Pieces& pieces,
                                          const CostGraphOptions& options, CostGraphPlan& plan) {
    const double least = work_bound(graph, pieces);
    std::vector<int> order(pieces.count);
    std::iota(order.begin(), order.end(), 0);
    std::optional<Assignment> best = cost_graph::cut_order(graph, pieces, order);
    plan.why = best ? fmt::format("topological order {:.6g} ms", best->max_load)
                    : "topological order: nothing fits";
    if (options.use_metis && graph.num_accelerators > 0) {
        try {
            std::optional<Assignment> other = cost_graph::cut_order(
                graph, pieces,
                cost_graph::metis_order(pieces, graph.num_accelerators + graph.num_cpus,
                                        options.seed));
            plan.why += other ? fmt::format(", METIS order {:.6g} ms", other->max_load)
                              : ", METIS order: nothing fits";
            if (other && (!best || other->max_load < best->max_load)) best = other;
        } catch (const MetisError& error) {
            plan.why += fmt::format(", METIS left out: {}", error.what());
        }
    } else {
        plan.why += ", METIS not used";
    }
    std::optional<Assignment> exact =
        cost_graph::cut_ideals(graph, pieces, best, least, kMaxIdeals);
    if (exact) {
        plan.exact = true;
        plan.why += fmt::format(", all downward-closed sets {:.6g} ms", exact->max_load);
        return exact;
    }
    plan.why += fmt::format(
        ", too many downward-closed sets to try all (more than {}, or their pairs)", kMaxIdeals);
    return best;
}

std::vector<int> to_nodes(const Pieces& pieces, const Assignment& a) {
    std::vector<int> device;
    for (int piece : pieces.of_node) device.push_back(a.device[piece]);
    return device;
}

[[noreturn]] void refuse(const CostGraph& graph, const char* what) {
    throw UserError(
        "{}: no {} keeps every accelerator below maxSizePerFPGA = {:.0f} bytes with {} "
        "accelerators and {} CPUs; give more accelerators, CPUs or memory",
        graph.path, what, graph.accelerator_memory, graph.num_accelerators, graph.num_cpus);
}

// Any assignment within memory, the largest pieces first, each on the emptiest device: where
// annealing starts when no contiguous plan fits.
std::vector<int> pack(const CostGraph& graph, const Pieces& p) {
    std::vector<int> order(p.count), device(p.count, -1);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return p.size[a] > p.size[b]; });
    std::vector<double> held(graph.num_accelerators, 0);
    for (int piece : order) {
        auto emptiest = std::min_element(held.begin(), held.end());
        if (emptiest != held.end() && std::isfinite(p.accelerator[piece]) &&
            *emptiest + p.size[piece] <= graph.accelerator_memory) {
            *emptiest += p.size[piece];
            device[piece] = static_cast<int>(emptiest - held.begin());
        } else if (graph.num_cpus > 0) {
            device[piece] = graph.num_accelerators;
        } else {
            refuse(graph, "assignment that was found");
        }
    }
    return device;
}

}  // namespace

double max_load(const CostGraph& graph, const std::vector<int>& device) {
    std::vector<double> load(graph.num_accelerators + graph.num_cpus, 0.0);
    for (size_t n = 0; n < graph.nodes.size(); ++n)
        load[device[n]] += device[n] < graph.num_accelerators ? graph.nodes[n].accelerator_latency
                                                              : graph.nodes[n].cpu_latency;
    std::vector<std::set<int>> readers(
        graph.nodes.size());  // devices that read a node's output, other than its own
    for (auto [a, b] : graph.edges)
        if (device[a] != device[b]) readers[a].insert(device[b]);
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
        if (readers[n].empty()) continue;
        if (device[n] < graph.num_accelerators) load[device[n]] += graph.nodes[n].output_cost;
        for (int d : readers[n])
            if (d < graph.num_accelerators) load[d] += graph.nodes[n].output_cost;
    }
    return load.empty() ? 0.0 : *std::max_element(load.begin(), load.end());
}

CostGraphPlan plan_cost_graph(const CostGraph& graph, const CostGraphOptions& options) {
    auto start = std::chrono::steady_clock::now();
    CostGraphPlan plan;
    Pieces ordered = cost_graph::contract(graph, true);
    std::optional<Assignment> found = best_contiguous(graph, ordered, options, plan);
    Pieces classes = cost_graph::contract(graph, false);
    plan.lower_bound = work_bound(graph, classes);
    plan.contiguous = options.contiguous;
    if (!found && options.contiguous) refuse(graph, "contiguous plan");
    if (found) plan.device = to_nodes(ordered, *found);
    if (!options.contiguous) {
        Assignment from;
        if (found) {
            from.device.assign(classes.count, 0);
            for (size_t n = 0; n < graph.nodes.size(); ++n)
                from.device[classes.of_node[n]] = plan.device[n];
        } else {
            from.device = pack(graph, classes);
        }
        from.max_load = max_load(graph, to_nodes(classes, from));
        auto used = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        Assignment better =
            cost_graph::anneal(graph, classes, from, plan.lower_bound,
                               std::max(0.0, options.time_limit_seconds - used), options.seed);
        plan.device = to_nodes(classes, better);
        plan.exact = false;
    }
    plan.max_load = max_load(graph, plan.device);
    // In contiguous mode an exhausted lattice is its own proof.
    if (plan.exact) plan.lower_bound = plan.max_load;
    plan.plan_ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    return plan;
}

std::string cost_graph_plan_to_json(const CostGraph& graph, const CostGraphPlan& plan) {
    nlohmann::ordered_json json;
    json["max_load"] = plan.max_load;
    json["lower_bound"] = plan.lower_bound;
    json["gap"] = plan.gap();
    json["contiguous"] = plan.contiguous;
    json["assignment"] = nlohmann::ordered_json::object();
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
        auto& place = json["assignment"][std::to_string(graph.nodes[n].id)];
        if (plan.device[n] >= graph.num_accelerators)
            place = "cpu";
        else
            place = plan.device[n];
    }
    json["plan_ms"] = plan.plan_ms;
    return json.dump() + "\n";
}

}  // namespace cleave::planner
