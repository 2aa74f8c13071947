// SPDX-License-Identifier: Apache-2.0
// Very many devices: alike parts of the machine are looked at once, and the plan is as good as if
// each had been.
#include <algorithm>
#include <random>

#include "models/llama_graph.h"
#include "planner/cost/collective_form.h"
#include "planner/cost/link_times.h"
#include "planner/planner.h"
#include "planner/search/check_options.h"
#include "planner/search/cost_tables.h"
#include "planner/search/propose.h"
#include "planner/search/stage_search.h"
#include "tests/planner/support/machines.h"
#include "tests/support/test.h"

namespace cleave::test {

using namespace planner;

TEST_CASE("on 96 devices no forced grid beats the plan by more than 1 %", "[planner]") {
    const Graph graph = models::build_llama_graph(*models::find_shape("llama-3-70b"), DType::kBF16);
    for (const char* kind : {"h100", "mi250x"}) {
        const Machine machine = machine_of(fmt::format("sim:{}[0-95]", kind));
        const auto objective = [&](int tp) {
            return static_cast<double>(
                make_plan(graph, machine, {}, {.tensor_parallel = tp}).prediction.objective_ns);
        };
        const double chosen = objective(0);
        int tried = 0;
        for (const int tp : {96, 48, 32, 24, 16, 12, 8, 4, 2}) {
            if (tried++ % kOneOf != 0) continue;
            INFO(kind << ", tp " << tp);
            CHECK(chosen <= 1.01 * objective(tp));
        }
    }
}

TEST_CASE("only what has memory for weights and KV is looked at", "[planner]") {
    const auto proposals = [](const Graph& graph, const Machine& machine, int64_t slack) {
        Workload workload;
        const Analysis analysis = analyse(graph, workload);
        PlanOptions options;
        const Shape shape = check_options(analysis, machine, workload, options);
        return propose(analysis, machine, workload, options, shape, slack).found.size();
    };
    const Graph large = models::build_llama_graph(*models::find_shape("llama-3-70b"), DType::kBF16);
    CHECK(proposals(large, machine_of("sim:h100[0]"), kShardsAlone) == 0);
    CHECK(proposals(large, machine_of("sim:h100[0]"), kTwiceTheMemory) > 0);
    CHECK(proposals(large, machine_of("sim:h100[0-1]"), kShardsAlone) > 0);
    // A tied embedding is there once, and counts twice: what just fits is looked at, too.
    const Graph tied = models::build_llama_graph(*models::find_shape("llama-3.2-1b"), DType::kBF16);
    Machine machine = machine_of("sim:h100[0]");
    const Plan plan = make_plan(tied, machine, {}, {});
    machine.devices[0].memory_bytes = plan.memory[0].needed();
    CHECK(proposals(tied, machine, kShardsAlone) > 0);
    CHECK_NOTHROW(make_plan(tied, machine, {}, {}));
}

TEST_CASE("sums over links that are alike cost what looking at each pair gives", "[planner]") {
    Machine machine = machine_of("sim:h100[0-23]");
    const LinkTable alike(machine);
    REQUIRE(alike.uniform() != nullptr);
    // A link more that no group has makes the table look at pairs.
    machine.devices.push_back(machine.devices.back());
    const LinkTable pairs(machine);
    REQUIRE(pairs.uniform() == nullptr);
    for (const std::vector<int>& members :
         {std::vector{0, 1}, {0, 3, 5, 7}, {6, 7, 8, 9}, {0, 8, 16}, {1, 2, 9, 10, 17}}) {
        std::vector<DeviceId> group;
        for (const int d : members) group.emplace_back(d);
        for (const SumForm form : {SumForm::kOneShot, SumForm::kTwoPhase, SumForm::kRing})
            for (const int64_t bytes : {1'000, 1'000'000})
                CHECK(alike.all_reduce_ns(group, bytes, form) ==
                      pairs.all_reduce_ns(group, bytes, form));
    }
}

TEST_CASE("classes and hosts tell the links of two kinds of cards, until one is another",
          "[planner]") {
    Machine machine = machine_of("sim:h100[0-15],sim:a100-80[0-15]");
    std::vector<int> classes(machine.devices.size(), 0);
    std::fill(classes.begin() + 16, classes.end(), 1);
    CHECK(LinkTable(machine).uniform() == nullptr);
    CHECK(LinkTable(machine).tell_links(classes));
    CHECK_FALSE(LinkTable(machine).tell_links(std::vector<int>(classes.size(), 0)));
    Link& link = machine.links.back();
    link.domain = 0;
    CHECK_FALSE(LinkTable(machine).tell_links(classes));
    link.domain = -1;
    link.latency_ns += 1;
    CHECK_FALSE(LinkTable(machine).tell_links(classes));
    machine.links.pop_back();
    CHECK_FALSE(LinkTable(machine).tell_links(classes));
}

TEST_CASE("a ring's next device is the first of those that the last one reaches fastest",
          "[planner]") {
    std::mt19937 random(7);
    for (int i = 0; i < 100; ++i) {
        Machine machine = machine_of("sim:h100[0-11]");
        for (Link& link : machine.links)
            link.bandwidth = 1'000 * (1 + static_cast<int64_t>(random() % 4));
        std::vector<DeviceId> group;
        for (size_t d = 0; d < 12; ++d) group.emplace_back(d);
        std::shuffle(group.begin(), group.end(), random);
        group.resize(2 + random() % 11);
        const LinkTable links(machine);
        const std::vector<DeviceId> ring = ring_order(links, group);
        std::vector<DeviceId> left = group, expected{group.front()};
        left.erase(left.begin());
        while (!left.empty()) {
            const auto next = std::ranges::max_element(
                left, {}, [&](DeviceId d) { return links.at(expected.back(), d)->bandwidth; });
            expected.push_back(*next);
            left.erase(next);
        }
        REQUIRE(ring == expected);
    }
}

}  // namespace cleave::test
