// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/cpu_many.h"

#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "models/stand_in_weights.h"
#include "planner/cost/groups.h"
#include "planner/machine/build_machine.h"
#include "planner/plan/plan_queries.h"
#include "planner/planner.h"
#include "runtime/base/thread_team.h"
#include "runtime/session/session.h"
#include "tools/benchmarks/bench_model.h"
#include "tools/cli/calibrate.h"
#include "tools/cli/host_bench.h"

namespace cleave::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kPast = 192;
constexpr int64_t kCounts[] = {4, 8, 16};  // of sequences
constexpr int64_t kMost = 16;              // of them
constexpr int kTurns = 12, kPassesATurn = 10;
// The threads of a session that slept lie on one core at times, until the system spreads them.
constexpr std::chrono::milliseconds kWarmUp{60};

struct Way {
    const char* name;
    const char* devices;
    int tp, pp, replicas, groups;
};
constexpr Way kWays[] = {{"one device", "host", 1, 1, 1, 1},
                         {"two replicas", "host[0-1]", 1, 1, 2, 1},
                         {"two stages", "host[0-1]", 1, 2, 1, 1},
                         {"two stages, two groups", "host[0-1]", 1, 2, 1, 2}};

struct Model {
    importer::Graph graph;
    DType dtype;  // of weights on the device
    std::optional<planner::ComputeMode> compute;
};

planner::Plan plan_of(const Model& model, const planner::HostFacts& facts, const Way& way,
                      int64_t sequences) {
    planner::Workload workload;
    workload.prompt_tokens = kPast;
    workload.context = kPast + 1;
    workload.batch = sequences;
    workload.compute = model.compute;
    workload.dtype = model.dtype;
    planner::PlanOptions options;
    options.tensor_parallel = way.tp;
    options.pipeline_stages = way.pp;
    options.replicas = way.replicas;
    if (way.replicas > 1) options.objective = planner::Objective::kThroughput;
    return planner::make_plan(model.graph,
                              planner::build_machine(planner::parse_devices(way.devices), facts),
                              workload, options);
}

// A way with its sessions open.
class ManyRunner {
public:
    ManyRunner(const Model& model, const planner::HostFacts& facts, const Way& way)
        : model_(model), way_(way) {
        const planner::Plan whole = plan_of(model, facts, way, kMost);
        runtime::SessionOptions options;
        options.threads = runtime::threads_of_each(0, way.replicas);
        for (int64_t r = 0; r < whole.num_replicas(); ++r) {
            plans_.push_back(std::make_unique<planner::Plan>(planner::replica_plan(whole, r)));
            sessions_.push_back(std::make_unique<runtime::Session>(*plans_.back(), options));
        }
    }

    // Some tokens of so many sequences, in all replicas at once.
    void turn(int64_t sequences) {
        const int64_t each = sequences / (way_.replicas * way_.groups);
        std::vector<runtime::Batch> passes;
        for (int group = 0; group < way_.groups; ++group)
            passes.push_back(decode_pass(group * each, each, kPast));
        const auto go = [&](int count) {
            std::vector<std::thread> threads;
            for (auto& session : sessions_)
                threads.emplace_back([&session, &passes, count] {
                    for (int i = 0; i < count; ++i) session->run_greedy(passes);
                });
            for (std::thread& thread : threads) thread.join();
        };
        const Clock::time_point began = Clock::now();
        while (Clock::now() - began < kWarmUp) go(1);
        const Clock::time_point start = Clock::now();
        go(kPassesATurn);
        ms_[sequences].push_back(
            std::chrono::duration<double, std::milli>(Clock::now() - start).count() / kPassesATurn);
    }

    double measured_ms(int64_t sequences) const { return tools::usual(ms_.at(sequences)); }

    // On the host as `facts` have it.
    double predicted_ms(const planner::HostFacts& facts, int64_t sequences) const {
        const planner::Plan plan = plan_of(model_, facts, way_, sequences / way_.groups);
        constexpr int64_t kCores = 1 << 20;  // shares of so many are shares of the whole
        const auto pass = [&](int64_t) {
            const planner::Prediction& p = plan.prediction;
            return planner::pass_time_of(plan, {p.decode_ns_per_token, p.decode_busy_ns},
                                         planner::core_shares(plan, kCores), kCores);
        };
        return 1e-6 * static_cast<double>(planner::round_ns(sequences, way_.groups, pass));
    }

private:
    const Model& model_;
    Way way_;
    std::vector<std::unique_ptr<planner::Plan>> plans_;
    std::vector<std::unique_ptr<runtime::Session>> sessions_;
    std::map<int64_t, std::vector<double>> ms_;  // by number of sequences, each by turn
};

}  // namespace

void many_sequences(const std::string& shape, DType dtype,
                    std::optional<planner::ComputeMode> compute) {
    Model model{graph_of(shape, dtype), dtype, compute};
    const models::StandInWeights weights(model.graph);
    planner::HostFacts facts = planner::read_host_facts();
    std::vector<std::unique_ptr<ManyRunner>> runners;
    for (const Way& way : kWays) runners.push_back(std::make_unique<ManyRunner>(model, facts, way));
    tools::HostCalibrator calibrator(facts, {1, kPassesATurn + 1, true});
    for (int round = 0; round < kTurns; ++round) {
        calibrator.round([] {}, nullptr);
        for (auto& runner : runners)
            for (const int64_t n : kCounts) runner->turn(n);
    }
    const tools::Measurement measurement = calibrator.result(facts);
    fmt::print("{} {}, {} tokens behind each; the same work's times differ by {:.0f} %\n", shape,
               dtype_name(dtype), kPast, 100 * measurement.spread);
    fmt::print("{:<24} {:>9} {:>17} {:>10} {:>10} {:>8}\n", "", "sequences", "ms a token of all",
               "tokens/s", "predicted", "ratio");
    for (size_t i = 0; i < runners.size(); ++i)
        for (const int64_t n : kCounts) {
            const double measured = runners[i]->measured_ms(n);
            const double predicted = runners[i]->predicted_ms(facts, n);
            fmt::print("{:<24} {:>9} {:>17.2f} {:>10.1f} {:>10.2f} {:>8.2f}\n", kWays[i].name, n,
                       measured, 1e3 * static_cast<double>(n) / measured, predicted,
                       predicted / measured);
        }
}

}  // namespace cleave::bench
