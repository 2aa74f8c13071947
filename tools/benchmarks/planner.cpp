// SPDX-License-Identifier: Apache-2.0
// `tools/bench planner`: the search against what other tools would do, on one core, every plan
// scored by the event simulation of its own steps; and against the published optima of cost graphs.
// Prints tables; nothing here is a test.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <map>
#include <string>

#include <fmt/format.h>

#include "models/llama_graph.h"
#include "models/shapes.h"
#include "planner/ask/figures.h"
#include "planner/build/build_plan.h"
#include "planner/cost_graph/cost_graph.h"
#include "planner/machine/build_machine.h"
#include "planner/plan/plan_queries.h"
#include "planner/planner.h"
#include "planner/search/baselines.h"
#include "planner/search/check_options.h"
#include "planner/search/propose.h"
#include "runtime/base/errors.h"

namespace {

using namespace cleave;
using namespace cleave::planner;

// Processor time: the planner is one thread, and what else the machine does is not its time.
double cpu_ms() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

struct Case {
    const char* model;
    const char* devices;
    int node;  // devices a host; 0: all on one
    Objective objective;
    double limit_ms;  // of planning; 0: none is set
};

// Devices beyond one host's `node` are on others, joined by the network.
Machine machine_of(const Case& c) {
    HostFacts host{8, int64_t{64} << 30, 40'000'000'000, 500'000'000'000, "x86-64-v3"};
    Machine machine = build_machine(parse_devices(c.devices), host);
    if (c.node == 0) return machine;
    for (size_t d = 0; d < machine.devices.size(); ++d)
        machine.devices[d].host = fmt::format("node{}", d / static_cast<size_t>(c.node));
    for (Link& link : machine.links)
        if (machine.device(link.from).host != machine.device(link.to).host) {
            link.kind = LinkKind::kNetwork;
            link.bandwidth = 45'000'000'000;
            link.latency_ns = 5000;
        }
    return machine;
}

struct Outcome {
    double ms = 0;       // the objective, or infinity where nothing fits
    double plan_ms = 0;  // best of several
    std::string shape;
    double gap = 0;
};

Outcome search(const Graph& graph, const Machine& machine, Objective objective, bool use_metis) {
    PlanOptions options;
    options.objective = objective;
    options.use_metis = use_metis;
    Outcome best{INFINITY, INFINITY, "does not fit", 0};
    for (int repeat = 0; repeat < 3; ++repeat) {
        double start = cpu_ms();
        try {
            Plan plan = make_plan(graph, machine, {}, options);
            best.plan_ms = std::min(best.plan_ms, cpu_ms() - start);
            best.ms = static_cast<double>(plan.prediction.objective_ns) / 1e6;
            best.gap = gap(plan);
            Placement shape;
            for (const Stage& s : plan.stages) shape.stages.push_back({s.devices, 0, 0, {}});
            best.shape = shape_name(shape);
        } catch (const DoesNotFit&) {
            best.plan_ms = std::min(best.plan_ms, cpu_ms() - start);
        }
    }
    return best;
}

// The best plan of each rule; infinity where none of its plans fits.
std::map<std::string, Outcome> by_rules(const Graph& graph, const Machine& machine,
                                        Objective objective) {
    PlanOptions options;
    options.objective = objective;
    Workload workload = settled_compute(graph, machine, {});
    Analysis analysis = analyse(graph, workload);
    check_options(analysis, machine, workload, options);
    std::map<std::string, Outcome> best;
    PlanBuilder builder(analysis, {"", graph, machine, workload, options});
    for (Baseline& b : baselines(analysis, machine, workload)) {
        const PlanBody plan = builder.build(b.placement);
        if (!fits_memory(plan)) continue;
        double ms = static_cast<double>(plan.prediction.objective_ns) / 1e6;
        auto [at, fresh] = best.try_emplace(b.rule, Outcome{ms, 0, b.shape, 0});
        if (!fresh && ms < at->second.ms) at->second = {ms, 0, b.shape, 0};
    }
    return best;
}

std::string cell(const std::map<std::string, Outcome>& rules, const char* rule, double ours) {
    auto at = rules.find(rule);
    if (at == rules.end()) return "does not fit";
    return fmt::format("{:.3f} ({:+.1f} %)", at->second.ms, 100 * (at->second.ms / ours - 1));
}

bool model_table() {
    constexpr Objective kFast = Objective::kLatency, kFull = Objective::kThroughput;
    const Case cases[] = {
        {"llama-3-8b", "sim:h100[0-7]", 0, kFast, 50},
        {"llama-3-8b", "sim:h100[0-7]", 0, kFull, 50},
        {"llama-3-70b", "sim:h100[0-15]", 8, kFast, 300},
        {"llama-3-70b", "sim:h100[0-15]", 8, kFull, 300},
        {"llama-3.1-405b", "sim:h100[0-63]", 8, kFast, 1000},
        {"llama-3.1-405b", "sim:h100[0-63]", 8, kFull, 1000},
        {"llama-3.1-405b", "sim:h100[0-15]", 8, kFast, 0},
        {"llama-3-70b", "sim:h100[0-6]", 0, kFast, 0},
        {"llama-3-70b", "sim:h100[0-2],sim:a100-80[0-1]", 0, kFast, 0},
        {"llama-3-70b", "sim:h100[0-2],sim:a100-80[0-1]", 0, kFull, 0},
        {"llama-3-8b", "sim:mi300x[0],sim:h100[0],sim:host[0]", 0, kFast, 0},
        {"llama-3-8b", "sim:l40s[0-1],sim:rtx4090[0-2]", 0, kFull, 0},
        {"llama-2-70b", "sim:rtx4090[0-7]", 0, kFast, 0},
        {"tinyllama-1.1b", "host[0-2]", 0, kFull, 0},
    };
    fmt::print(
        "ms per token of the objective, by the event simulation (in brackets: more than ours); "
        "plan ms is processor time, best of 3, limits are the project's own\n\n");
    fmt::print(
        "{:<15} {:<38} {:<10} | {:>9} {:<16} {:>6} {:>9} {:>8} | {:>9} {:>9} | {:>18} {:>18} "
        "{:>18} {:>18}\n",
        "model", "devices", "objective", "ours", "shape", "gap", "plan ms", "limit", "no METIS",
        "plan ms", "equal layers", "megatron", "greedy fill", "best grid");
    bool never_worse = true;
    for (const Case& c : cases) {
        Graph graph = models::build_llama_graph(*models::find_shape(c.model), DType::kBF16);
        Machine machine = machine_of(c);
        Outcome ours = search(graph, machine, c.objective, true);
        Outcome plain = search(graph, machine, c.objective, false);
        auto rules = by_rules(graph, machine, c.objective);
        for (const auto& [rule, outcome] : rules)
            never_worse = never_worse && ours.ms <= outcome.ms * (1 + 1e-9);
        std::string devices = c.node ? fmt::format("{}, {} a node", c.devices, c.node) : c.devices;
        fmt::print(
            "{:<15} {:<38} {:<10} | {:>9.3f} {:<16} {:>4.0f} % {:>9.1f} {:>8} | {:>9.3f} "
            "{:>9.1f} | {:>18} {:>18} {:>18} {:>18}\n",
            c.model, devices, row_of(c.objective).name, ours.ms, ours.shape, 100 * ours.gap,
            ours.plan_ms, c.limit_ms > 0 ? fmt::format("{:.0f}", c.limit_ms) : "-", plain.ms,
            plain.plan_ms, cell(rules, "equal layers", ours.ms), cell(rules, "megatron", ours.ms),
            cell(rules, "greedy fill", ours.ms), cell(rules, "uniform grid", ours.ms));
        std::fflush(stdout);
    }
    return never_worse;
}

// Many users of many devices: processor time of one search.
void users_table() {
    struct Row {
        const char *model, *devices;
        Objective objective;
        int64_t users;  // 0: as many as fit
        int limit_ms;
    };
    constexpr Objective kFull = Objective::kThroughput;
    fmt::print("\n{:<15} {:<15} {:<10} {:>6} | {:>10} {:<28} {:>9} {:>8}\n", "model", "devices",
               "objective", "users", "tokens/s", "shape", "plan ms", "limit");
    for (const Row& row :
         {Row{"llama-3.1-405b", "sim:h100[0-1023]", kFull, 1024, 5000},
          Row{"llama-3.1-405b", "sim:h100[0-1023]", kFull, 4096, 5000},
          Row{"llama-3.1-405b", "sim:h100[0-1023]", kFull, 0, 5000},
          Row{"llama-3-70b", "sim:h100[0-63]", kFull, 0, 5000},
          Row{"llama-3.1-405b", "sim:h100[0-1023]", Objective::kFleet, 1024, 5000}}) {
        const Graph graph = models::build_llama_graph(*models::find_shape(row.model), DType::kBF16);
        const Machine machine = build_machine(parse_devices(row.devices), {});
        PlanOptions options;
        options.objective = row.objective;
        options.replicas = 0;
        options.most_users = row.users == 0;
        const double start = cpu_ms();
        const Plan plan =
            make_plan(graph, machine, {.batch = std::max<int64_t>(1, row.users)}, options);
        const double plan_ms = cpu_ms() - start;
        fmt::print("{:<15} {:<15} {:<10} {:>6} | {:>10.0f} {:<28} {:>9.0f} {:>8}\n", row.model,
                   row.devices, row_of(row.objective).name,
                   row.users > 0 ? row.users : served_users(plan), tokens_per_second(plan),
                   shape_of(plan), plan_ms, row.limit_ms);
        std::fflush(stdout);
    }
}

void cost_graph_table(const std::filesystem::path& folder, double seconds) {
    fmt::print("\n{:<34} | {:>11} {:>11} {:>7} {:>9} {:>11} | {:>11} {:>7} {:>9}\n", "cost graph",
               "contiguous", "bound", "gap", "plan ms", "no METIS", "any place", "gap", "plan ms");
    for (const char* name : {"LayerGraphs/bert24", "LayerGraphs/resnet50",
                             "OperatorGraphs/bert_l-3", "OperatorGraphs/resnet50"}) {
        CostGraph graph = load_cost_graph(
            (folder / "inputs/throughput-inputs" / (std::string(name) + "_inference.json"))
                .string());
        CostGraphOptions options;
        CostGraphPlan runs = plan_cost_graph(graph, options);
        options.use_metis = false;
        CostGraphPlan plain = plan_cost_graph(graph, options);
        options.use_metis = true;
        options.contiguous = false;
        options.time_limit_seconds = seconds;
        CostGraphPlan any = plan_cost_graph(graph, options);
        fmt::print(
            "{:<34} | {:>11.4f} {:>11.4f} {:>5.1f} % {:>9.1f} {:>11.4f} | {:>11.4f} {:>5.1f} "
            "% {:>9.1f}\n",
            name, runs.max_load, runs.lower_bound, 100 * runs.gap(), runs.plan_ms, plain.max_load,
            any.max_load, 100 * any.gap(), any.plan_ms);
        std::fflush(stdout);
    }
}

}  // namespace

int main(int argc, char** argv) {
    try {
        bool never_worse = model_table();
        fmt::print("\n{}\n", never_worse ? "never worse than any of the rules"
                                         : "WORSE than a rule somewhere: see the negative figures");
        users_table();
        std::filesystem::path folder = argc > 1 ? argv[1] : "";
        if (std::filesystem::exists(folder / "inputs"))
            cost_graph_table(folder, 10);
        else
            fmt::print("no cost graphs: give the folder of the published instances\n");
        return never_worse ? 0 : 1;
    } catch (const std::exception& error) {
        fmt::print(stderr, "bench: {}\n", error.what());
        return 1;
    }
}
