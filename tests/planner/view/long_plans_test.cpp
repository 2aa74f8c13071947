// SPDX-License-Identifier: Apache-2.0
// Plans of very many devices are as short to read as those of a few.
#include <algorithm>
#include <sstream>
#include <tuple>

#include "models/llama_graph.h"
#include "planner/planner.h"
#include "planner/view/plan_text.h"
#include "tests/planner/support/machines.h"
#include "tests/support/test.h"

namespace cleave::test {

using namespace planner;

TEST_CASE("the text of a plan has at most 100 lines of 120 columns", "[planner]") {
    using Case = std::tuple<const char*, int, PlanOptions, int64_t>;
    int tried = 0;
    for (const auto& [model, devices, options, batch] :
         {Case{"llama-3.1-405b", 64, {.tensor_parallel = 4, .pipeline_stages = 16}, 1},
          Case{"llama-3.1-405b", 64, {.tensor_parallel = 1, .pipeline_stages = 64}, 1},
          Case{"llama-3-8b", 7, {}, 1}, Case{"llama-3-70b", 48, {.tensor_parallel = 3}, 8},
          Case{"llama-3.1-405b", 128, {.objective = Objective::kThroughput, .replicas = 0}, 512},
          Case{"llama-3.1-405b", 64, {.objective = Objective::kFleet, .replicas = 0}, 126},
          Case{"llama-3.1-405b", 256, {.objective = Objective::kFleet, .replicas = 0}, 510},
          Case{"llama-3.1-405b", 256, {.pipeline_stages = 126}, 1}}) {
        if (tried++ % kOneOf != 0) continue;
        INFO(model << " on " << devices);
        const Graph graph = models::build_llama_graph(*models::find_shape(model), DType::kBF16);
        const Plan plan = make_plan(graph, machine_of(fmt::format("sim:h100[0-{}]", devices - 1)),
                                    {.batch = batch}, options);
        std::istringstream text(plan_to_text(plan, {.width = 120}));
        int lines = 0;
        for (std::string line; std::getline(text, line); ++lines) CHECK(line.size() <= 120);
        CHECK(lines <= 100);
    }
}

}  // namespace cleave::test
