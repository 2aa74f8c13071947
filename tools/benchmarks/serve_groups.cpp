// SPDX-License-Identifier: Apache-2.0
// Tokens a second of groups of sequences in flight over those of one group with all sequences, on a
// pipeline of two host devices. Beside each ratio is what the plan's own costs make of it, and what
// the machine's cores give: two models, one a core, at once over one after the other. Cores may be
// threads of one core, or share a host with others.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "planner/cost/groups.h"
#include "planner/cost/simulate.h"
#include "planner/machine/build_machine.h"
#include "planner/planner.h"
#include "runtime/generate/batching.h"
#include "runtime/session/session.h"
#include "tools/benchmarks/bench_model.h"
#include "tools/benchmarks/serve_bench.h"
#include "tools/cli/calibrate.h"

namespace cleave::bench {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kPrompt = 16, kGroupContext = 128;
constexpr int kStages = 2;
// Tokens of each sequence in a round. The first pass fills the pipeline and the last one empties
// it: with g groups they make a round longer by one of g * kSteps passes of a stage.
constexpr int kSteps = 16;

// Groups that decode, each with its next pass in flight as soon as it has its tokens.
class Groups {
public:
    // `live` sequences in so many groups of one session.
    Groups(runtime::Session& session, int64_t live, int64_t groups) {
        for (int64_t g = 0; g < groups; ++g)
            add(session, live * g / groups, live * (g + 1) / groups);
    }
    // A group of `live` sequences of each session.
    Groups(std::span<runtime::Session* const> sessions, int64_t live) {
        for (runtime::Session* session : sessions) add(*session, 0, live);
    }

    // Seconds of a round in which each sequence gets kSteps tokens.
    double round() {
        const Clock::time_point start = Clock::now();
        for (Group& group : groups_) submit(group);
        for (int step = 1; step <= kSteps; ++step)
            for (Group& group : groups_) {
                const runtime::PassResult result = group.session->take();
                for (size_t s = 0; s < group.live.size(); ++s) {
                    CLEAVE_CHECK(result.tokens[s] >= 0) << "the model's logits are not numbers";
                    group.live[s].token = result.tokens[s];
                    group.live[s].position = step < kSteps ? kPrompt + step : kPrompt;
                }
                if (step < kSteps) submit(group);
            }
        return std::chrono::duration<double>(Clock::now() - start).count();
    }

private:
    struct Group {
        runtime::Session* session;
        std::vector<runtime::LiveSequence> live;
    };

    void add(runtime::Session& session, int64_t begin, int64_t end) {
        Group& group = groups_.emplace_back();
        group.session = &session;
        for (int64_t s = begin; s < end; ++s)
            group.live.push_back({static_cast<size_t>(s), 1, kPrompt});
    }
    static void submit(const Group& group) {
        group.session->submit(runtime::make_decode_pass(group.live), runtime::PassResults::kTokens);
    }

    std::vector<Group> groups_;
};

void prefill(runtime::Session& session, const planner::Plan& plan, int64_t live) {
    const std::vector<std::vector<int32_t>> prompts(static_cast<size_t>(live),
                                                    prompt(kPrompt, plan.graph.config.vocab_size));
    std::vector<runtime::Batch> batches;
    for (runtime::PrefillPass& pass :
         runtime::make_prefill_passes(prompts, plan.workload.prefill_chunk, false))
        batches.push_back(std::move(pass.batch));
    session.run_greedy(batches);
}

// What a round of one group takes over that of several, by the costs of the plan.
double predicted(const planner::Plan& plan, int64_t live, int64_t groups) {
    const planner::Analysis analysis = planner::analyse(plan.graph, plan.workload);
    const auto pass_time = [&](int64_t sequences) {
        const planner::PhaseTimes times = planner::decode_times(analysis, plan, sequences);
        return planner::PassTime{times.whole_ns,
                                 *std::max_element(times.busy_ns.begin(), times.busy_ns.end())};
    };
    return static_cast<double>(planner::round_ns(live, 1, pass_time)) /
           static_cast<double>(planner::round_ns(live, groups, pass_time));
}

// `stages` devices, each with `threads`, that hold `live` sequences.
struct Pipeline {
    Pipeline(const ServeModel& model, const char* devices, int stages, int64_t live, int threads) {
        planner::Workload workload;
        workload.batch = live;
        workload.context = kGroupContext;
        workload.prompt_tokens = kPrompt;
        planner::PlanOptions options;
        options.objective = planner::Objective::kThroughput;  // stages of equal times
        options.tensor_parallel = 1;
        options.pipeline_stages = stages;
        plan = planner::make_plan(
            model.graph, planner::build_machine(planner::parse_devices(devices), model.facts),
            workload, options);
        runtime::SessionOptions session_options;
        session_options.threads = threads;
        session = std::make_unique<runtime::Session>(plan, session_options);
        prefill(*session, plan, live);
    }

    planner::Plan plan;
    std::unique_ptr<runtime::Session> session;
};

struct Ratios {
    std::vector<double> groups;   // of the rounds: two groups / one
    std::vector<double> machine;  // two models at once / one after the other
    double predicted = 0;         // by the plan's costs, whose cores do not slow one another
};

// Each stage with `threads`.
Ratios table_row(const ServeModel& model, int64_t live, int threads, int rounds) {
    const Pipeline pipeline(model, "host[0-1]", kStages, live, threads);
    const planner::Plan& plan = pipeline.plan;
    const Pipeline a(model, "host[0]", 1, live / kStages, threads);
    const Pipeline b(model, "host[0]", 1, live / kStages, threads);
    runtime::Session* const models[] = {a.session.get(), b.session.get()};
    Groups one(*pipeline.session, live, 1), two(*pipeline.session, live, kStages);
    Groups first_model(std::span(models, 1), live / kStages);
    Groups second_model(std::span(models + 1, 1), live / kStages);
    Groups both_models(models, live / kStages);
    std::vector<double> of_one, of_two;
    Ratios ratios{.groups = {}, .machine = {}, .predicted = predicted(plan, live, kStages)};
    for (Groups* groups : {&one, &two, &both_models}) groups->round();
    for (int round = 0; round < rounds; ++round) {
        of_one.push_back(one.round());
        of_two.push_back(two.round());
        ratios.groups.push_back(of_one.back() / of_two.back());
        const double in_turn = first_model.round() + second_model.round();
        ratios.machine.push_back(in_turn / both_models.round());
    }
    const auto tokens = static_cast<double>(live * kSteps);
    const double first = tools::median(of_one), second = tools::median(of_two);
    const double best = *std::min_element(of_one.begin(), of_one.end()) /
                        *std::min_element(of_two.begin(), of_two.end());
    fmt::print("{:>9} {:>8} {:>14.0f} {:>14.0f} {:>9.2f}x {:>10.2f}x {:>9.2f}x {:>9.2f}x {:>14}\n",
               live, threads, tokens / first, tokens / second, first / second, best,
               ratios.predicted, tools::median(ratios.machine),
               planner::groups_in_flight(plan, live, threads, std::thread::hardware_concurrency()));
    std::fflush(stdout);
    return ratios;
}

}  // namespace

std::vector<Row> groups_in_flight(const ServeModel& model, int rounds) {
    constexpr int64_t kComputeBound = 64;
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    fmt::print("host[0-1] pp 2; decode at {} tokens\n\n", kPrompt);
    fmt::print("{:>9} {:>8} {:>14} {:>14} {:>10} {:>11} {:>10} {:>10} {:>14}\n", "sequences",
               "threads", "tokens/s of 1", "tokens/s of 2", "median", "best rounds", "predicted",
               "machine", "plan's groups");
    Row row{.name = "groups in flight, 2 / 1", .goal = 1.6};
    row.detail =
        fmt::format("pp 2, {} sequences, each stage with half of the cores", kComputeBound);
    Row share{.name = "groups, share of the bound", .goal = 0.9};
    share.detail = "of the predicted ratio, times what two cores at once give of two cores";
    for (const int64_t live : {int64_t{128}, kComputeBound, int64_t{8}, int64_t{2}}) {
        const Ratios ratios = table_row(model, live, std::max(1, cores / 2), rounds);
        if (live != kComputeBound) continue;
        row.ratios = ratios.groups;
        for (size_t i = 0; i < ratios.groups.size(); ++i)
            share.ratios.push_back(ratios.groups[i] /
                                   (ratios.predicted * ratios.machine[i] / kStages));
    }
    table_row(model, kComputeBound, cores, rounds);
    fmt::print("\n");
    return {row, share};
}

}  // namespace cleave::bench
