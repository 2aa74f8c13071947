// SPDX-License-Identifier: Apache-2.0
// The search equals brute force on small graphs: every cut between units, every contiguous range of
// devices, devices left out anywhere, each way to share a stage's heads and work; for throughput
// also every assignment of units to ranges, in any order. All scored by the event simulation, not
// by the programme's own cost.
#include <functional>

#include "models/llama_graph.h"
#include "planner/build/build_plan.h"
#include "planner/planner.h"
#include "planner/search/check_options.h"
#include "planner/search/cost_tables.h"
#include "planner/search/device_order.h"
#include "tests/planner/support/random_cases.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using namespace planner;

// A request and the best score of all placements visited so far.
class BruteForce {
public:
    BruteForce(const Graph& graph, const Machine& machine, const Workload& workload,
               const PlanOptions& options)
        : analysis_(analyse(graph)), tables_(settled(graph, machine, workload, options)) {}

    // Contiguous stages.
    int64_t over_cuts() {
        Placement placement;
        extend(placement, 0, 0);
        return best_;
    }

    // Any unit on any of the ranges of a partition of the devices.
    int64_t over_assignments() {
        std::vector<std::pair<int, int>> ranges;
        partition(ranges, 0);
        return best_;
    }

private:
    CostTables settled(const Graph& graph, const Machine& machine, const Workload& workload,
                       const PlanOptions& options) {
        plan_.graph = graph;
        plan_.machine = machine;
        plan_.workload = workload;
        plan_.options = options;
        check_options(analysis_, plan_.machine, plan_.workload, options);
        return CostTables(analysis_, plan_.machine, plan_.workload, user_order(plan_.machine), 0);
    }

    int units() const { return static_cast<int>(analysis_.units.size()); }
    int devices() const { return static_cast<int>(plan_.machine.devices.size()); }

    StageChoice stage(int first_device, int count, int from, int to, ShareMode mode) {
        StageChoice s;
        s.devices = tables_.devices_of(first_device, count);
        s.shares = tables_.range(first_device, count, mode).shares;
        s.begin = analysis_.units[from].begin;
        s.end = analysis_.units[to - 1].end;
        return s;
    }

    // Both ways to cut heads, and to share between unequal devices.
    void each_share(int first_device, int count, int from, int to,
                    const std::function<void(const StageChoice&)>& visit) {
        for (ShareMode mode : {ShareMode::kBySpeed, ShareMode::kByMemory}) {
            if (mode == ShareMode::kByMemory && !tables_.unequal(first_device, count)) continue;
            StageChoice s = stage(first_device, count, from, to, mode);
            visit(s);
            s.shares.whole_groups = !s.shares.whole_groups;
            if (count > 1) visit(s);
        }
    }

    void score(const Placement& placement) {
        Plan candidate;
        candidate.graph = std::move(plan_.graph);
        candidate.machine = plan_.machine;
        candidate.workload = plan_.workload;
        candidate.options = plan_.options;
        build_placement(analysis_, placement, candidate);
        if (fits_memory(candidate)) best_ = std::min(best_, candidate.prediction.objective_ns);
        plan_.graph = std::move(candidate.graph);
    }

    void extend(Placement& placement, int unit, int device) {
        if (unit == units()) return score(placement);
        if (device == devices()) return;
        extend(placement, unit, device + 1);
        for (int end = unit + 1; end <= units(); ++end)
            for (int count = 1; device + count <= devices(); ++count)
                each_share(device, count, unit, end, [&](const StageChoice& s) {
                    placement.stages.push_back(s);
                    extend(placement, end, device + count);
                    placement.stages.pop_back();
                });
    }

    void partition(std::vector<std::pair<int, int>>& ranges, int device) {
        if (device == devices()) {
            if (ranges.empty()) return;
            std::vector<int> range(units(), 0);
            return assign(ranges, range, 0);
        }
        partition(ranges, device + 1);
        for (int count = 1; device + count <= devices(); ++count) {
            ranges.emplace_back(device, count);
            partition(ranges, device + count);
            ranges.pop_back();
        }
    }

    void assign(const std::vector<std::pair<int, int>>& ranges, std::vector<int>& range, int unit) {
        if (unit < units()) {
            for (size_t r = 0; r < ranges.size(); ++r) {
                range[unit] = static_cast<int>(r);
                assign(ranges, range, unit + 1);
            }
            return;
        }
        Placement placement;
        for (int from = 0, to = 0; from < units(); from = to) {
            for (to = from + 1; to < units() && range[to] == range[from];) ++to;
            auto [first, count] = ranges[range[from]];
            placement.stages.push_back(stage(first, count, from, to, ShareMode::kBySpeed));
        }
        score(placement);
    }

    Analysis analysis_;
    Plan plan_;
    CostTables tables_;
    int64_t best_ = INT64_MAX;
};

}  // namespace

TEST_CASE("1,000 small plans equal brute force over all cuts, device ranges and shares",
          "[planner]") {
    Drawer drawer(1);
    for (int i = 0; i < 1000; ++i) {
        bool throughput = i % 4 == 3;
        models::Shape shape = drawer.model({.layers = i % 5 == 0 ? 2 : 1});
        Graph graph = models::build_llama_graph(shape, DType::kF16);
        Machine machine =
            i % 2
                ? drawer.catalogue_machine(shape.config.num_layers > 1 ? 2 : 3)
                : build_machine(parse_devices(fmt::format("sim:{}[0-{}]", i % 3 ? "h100" : "a40",
                                                          shape.config.num_layers > 1 ? 1 : i % 3)),
                                small_host());
        Workload workload;
        workload.batch = drawer.pick(1, 4);
        workload.prompt_tokens = drawer.pick(1, 512);
        workload.context = workload.prompt_tokens + drawer.pick(1, 1024);
        PlanOptions options;
        options.objective = throughput ? Objective::kThroughput : Objective::kLatency;
        Plan plan = make_plan(graph, machine, workload, options);
        BruteForce brute(graph, machine, workload, options);
        int64_t best = brute.over_cuts();
        if (throughput) best = brute.over_assignments();
        INFO("case " << i << ": " << shape.config.num_layers << " layers, "
                     << shape.config.num_heads << " heads, " << shape.config.num_kv_heads
                     << " KV heads on " << machine.name);
        CHECK(plan.prediction.objective_ns == best);
        REQUIRE(plan.prediction.lower_bound_ns <= best);
    }
}

}  // namespace cleave::test
