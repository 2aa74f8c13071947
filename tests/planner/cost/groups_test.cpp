// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/groups.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "models/llama_graph.h"
#include "planner/cost/simulate.h"
#include "planner/machine/build_machine.h"
#include "planner/planner.h"
#include "planner/verify/verify.h"

#include "tests/planner/support/machines.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::planner;

namespace {

// Groups that go round a pipeline: each begins again when it has come out, a stage has one at a
// time, first come, first served. Until all have come out once more, when nothing changes any more.
int64_t played(const std::vector<int64_t>& stages, int64_t groups) {
    constexpr int kRounds = 50;
    std::vector<int64_t> free(stages.size(), 0), ready(static_cast<size_t>(groups), 0);
    int64_t before = 0;
    for (int round = 0; round < kRounds; ++round) {
        before = ready[0];
        for (int64_t& group : ready)
            for (size_t s = 0; s < stages.size(); ++s)
                group = free[s] = std::max(group, free[s]) + stages[s];
    }
    return ready[0] - before;
}

// By number of sequences: the longer of reading weights and computing, of each stage.
struct Pipeline {
    std::vector<int64_t> weights, each;
    std::vector<int64_t> stages(int64_t sequences) const {
        std::vector<int64_t> times;
        for (size_t s = 0; s < weights.size(); ++s)
            times.push_back(std::max(weights[s], sequences * each[s]));
        return times;
    }
};

Machine machine_of(const char* devices) {
    const HostFacts facts{2, int64_t{8} << 30, 20'000'000'000, 100'000'000'000, ""};
    return build_machine(parse_devices(devices), facts);
}

// A core on each of two hosts.
Machine two_hosts(int64_t latency_ns) {
    return cleave::test::on_two_hosts(machine_of("host[0-1]"), 125'000'000, latency_ns);
}

Plan plan_of(const Machine& machine, int tp, int pp, Objective objective = Objective::kLatency) {
    Workload workload;
    workload.batch = 64;
    workload.context = 128;
    workload.prompt_tokens = 64;
    PlanOptions options;
    options.objective = objective;
    options.tensor_parallel = tp;
    options.pipeline_stages = pp;
    return make_plan(models::build_llama_graph(*models::find_shape("llama-110m"), DType::kF32),
                     machine, workload, options);
}
Plan plan_of(const char* devices, int tp, int pp) { return plan_of(machine_of(devices), tp, pp); }

}  // namespace

TEST_CASE("a round of groups takes what playing the pipeline takes", "[planner]") {
    std::mt19937 random(3);
    const auto draw = [&](int64_t most) {
        return 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(most));
    };
    for (int i = 0; i < 2000; ++i) {
        Pipeline pipeline;
        const int64_t stages = draw(6), live = draw(64);
        for (int64_t s = 0; s < stages; ++s) {
            pipeline.weights.push_back(draw(1000));
            pipeline.each.push_back(draw(60));
        }
        const auto pass_time = [&](int64_t sequences) {
            const std::vector<int64_t> times = pipeline.stages(sequences);
            return PassTime{std::accumulate(times.begin(), times.end(), int64_t{0}),
                            *std::max_element(times.begin(), times.end())};
        };
        std::vector<int64_t> rounds;
        for (int64_t g = 1; g <= std::min(stages, live); ++g) {
            rounds.push_back(played(pipeline.stages((live + g - 1) / g), g));
            REQUIRE(round_ns(live, g, pass_time) == rounds.back());
        }
        // Of all numbers the fewest within a twentieth of the best.
        const int64_t best = best_groups(live, stages, pass_time);
        const int64_t least = *std::min_element(rounds.begin(), rounds.end());
        REQUIRE(rounds[static_cast<size_t>(best) - 1] * 100 <= least * 105);
        for (int64_t g = 1; g < best; ++g)
            REQUIRE(rounds[static_cast<size_t>(g) - 1] * 100 > least * 105);
    }
}

TEST_CASE("a plan's decode takes what its own prediction says for its batch", "[planner]") {
    const Plan plan = plan_of("host[0-3]", 2, 2);
    const PhaseTimes times =
        decode_times(analyse(plan.graph, plan.workload), plan, plan.workload.batch);
    CHECK(times.whole_ns == plan.prediction.decode_ns_per_token);
    CHECK(times.busy_ns == plan.prediction.decode_busy_ns);
    CHECK(decode_times(analyse(plan.graph, plan.workload), plan, 1).whole_ns < times.whole_ns);
}

TEST_CASE("a pipeline has several groups where decode computes, and one where it reads weights",
          "[planner]") {
    const Plan two = plan_of("host[0-1]", 1, 2), four = plan_of("host[0-3]", 1, 4);
    // Each stage with a core of its own.
    CHECK(groups_in_flight(two, 64, 1, 2) == 2);
    CHECK(groups_in_flight(two, 2, 1, 2) == 1);
    CHECK(groups_in_flight(two, 1, 1, 2) == 1);
    CHECK(groups_in_flight(four, 64, 1, 4) > 2);
    // Stages that have all cores each leave none for another group, nor does one stage.
    CHECK(groups_in_flight(two, 64, 2, 2) == 1);
    CHECK(groups_in_flight(plan_of("host[0-1]", 2, 1), 64, 1, 2) == 1);
}

TEST_CASE("a plan counts no more groups than a run keeps, and one where a device comes back",
          "[planner]") {
    const Plan ten = plan_of(machine_of("sim:h100[0-9]"), 1, 10, Objective::kThroughput);
    CHECK(ten.stages.size() == 10);
    CHECK(most_groups(ten) == kMostGroups);
    CHECK(ten.prediction.serving.groups <= kMostGroups);
    Plan twice = plan_of(two_hosts(100'000'000), 1, 2);
    CHECK(most_groups(twice) == kMostGroups);
    twice.stages[1].devices = twice.stages[0].devices;
    CHECK(most_groups(twice) == 1);
}

TEST_CASE(
    "between hosts a token pays for each way, and the devices work while others are under way",
    "[planner]") {
    constexpr int64_t kWay = 100'000'000;
    const Plan near = plan_of(two_hosts(0), 1, 2), far = plan_of(two_hosts(kWay), 1, 2);
    const auto more = [](int64_t one, int64_t other) {
        return static_cast<double>(one - other) / kWay;
    };
    // To the second stage, and the token back.
    CHECK(more(far.prediction.decode_ns_per_token, near.prediction.decode_ns_per_token) ==
          Approx(2).margin(1e-3));
    for (size_t d = 0; d < 2; ++d)
        CHECK(more(far.prediction.decode_busy_ns[d], near.prediction.decode_busy_ns[d]) ==
              Approx(0).margin(1e-3));
    CHECK(groups_in_flight(near, 64, 1, 1) <= 2);
    CHECK(groups_in_flight(far, 64, 1, 1) > 2);
    // A plan for many users counts them, too, and is sound.
    const Plan many = plan_of(two_hosts(kWay), 1, 2, Objective::kThroughput);
    CHECK(many.prediction.serving.groups > 2);
    Plan more_groups = many;
    more_groups.prediction.serving.groups = kMostGroups;
    CHECK(find_violations(more_groups).empty());
    ++more_groups.prediction.serving.groups;
    const std::vector<Violation> found = find_violations(more_groups);
    REQUIRE(found.size() == 1);
    CHECK(found.front().rule == "serving-groups");
    // Of tensors split over both each sum is a way, and the word that a pass begins is one.
    const Plan split = plan_of(two_hosts(kWay), 2, 1), quick = plan_of(two_hosts(0), 2, 1);
    int64_t exchanges = 0;
    for (const Step& step : split.decode.steps) exchanges += step.collective() ? 1 : 0;
    CHECK(more(split.prediction.decode_ns_per_token, quick.prediction.decode_ns_per_token) ==
          Approx(static_cast<double>(exchanges + 1)).margin(1e-2));
    CHECK(groups_in_flight(split, 64, 1, 1) == 1);
}
