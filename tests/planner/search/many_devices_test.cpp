// SPDX-License-Identifier: Apache-2.0
// Very many devices: alike parts of the machine are looked at once, and the plan is as good as if
// each had been.
#include "models/llama_graph.h"
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

}  // namespace cleave::test
