// SPDX-License-Identifier: Apache-2.0
// The passes of make_plan, watched from outside.
#include <set>

#include "models/llama_graph.h"
#include "planner/file/plan_file.h"
#include "planner/machine/build_machine.h"
#include "planner/planner.h"
#include "tests/planner/support/random_cases.h"
#include "tests/support/test.h"

namespace cleave::test {

using namespace planner;

TEST_CASE("each pass is noted once it has run, and each plan that one leaves is proved",
          "[planner]") {
    const Graph graph = models::build_llama_graph(*models::find_shape("stories-260k"), DType::kF32);
    const Machine machine = build_machine(parse_devices("host[0-2]"), small_host());
    const Workload workload{.prompt_tokens = 16, .context = 128};
    std::vector<std::string> passes;
    std::set<std::string> proved;
    PassControl control;
    control.prove_each = true;
    control.note = [&](const PassNote& note) {
        passes.emplace_back(note.pass);
        if (note.proved) proved.insert(passes.back());
        CHECK(note.ns >= 0);
    };
    const Plan watched =
        make_plan(graph, machine, workload, {.objective = Objective::kThroughput}, control);
    CHECK(passes == std::vector<std::string>{"analyse", "check_options", "propose",
                                             "propose: METIS", "build_candidates", "choose",
                                             "refine", "enumerate", "explain", "lower_bound",
                                             "pcie_range", "verify"});
    CHECK(proved == std::set<std::string>{"choose", "refine", "enumerate", "explain", "lower_bound",
                                          "pcie_range"});
    // Watching changes nothing.
    CHECK(
        serialize_plan(watched) ==
        serialize_plan(make_plan(graph, machine, workload, {.objective = Objective::kThroughput})));
}

TEST_CASE("plans are sound after every pass", "[planner]") {
    Drawer drawer(3);
    for (int i = 0; i < cases(60); ++i) {
        const Graph graph =
            models::build_llama_graph(drawer.model({.layers = 4, .biases = true}), DType::kF16);
        PlanOptions options{.objective = static_cast<Objective>(i % 3)};
        PassControl control{.prove_each = true, .enumerate = i % 2 == 0};
        CHECK_NOTHROW(make_plan(graph, drawer.any_machine(4), {.batch = drawer.pick(1, 4)}, options,
                                control));
    }
}

}  // namespace cleave::test
