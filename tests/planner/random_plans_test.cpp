// SPDX-License-Identifier: Apache-2.0
// Models, machines and workloads drawn at random, planned: what always holds of a plan and its views.
#include <array>
#include <random>
#include <sstream>

#include "models/llama_graph.h"
#include "planner/plan_file.h"
#include "planner/plan_text.h"
#include "planner/planner.h"
#include "planner/verify.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using namespace planner;

class Drawer {
public:
    explicit Drawer(uint32_t seed) : random_(seed) {}

    Plan plan() {
        models::Shape shape = model();
        Workload workload{.batch = pick(1, 4), .prompt_tokens = pick(1, 64)};
        workload.context = workload.prompt_tokens + pick(0, 64);
        workload.prefill_chunk = pick(1, 100);
        workload.all_logits = pick(0, 3) == 0;
        const int devices = pick(1, 9);
        PlanOptions options{.objective = static_cast<Objective>(pick(0, 2))};
        const int tp = pick(1, devices);
        if (pick(0, 1) && devices % tp == 0 && devices / tp <= shape.config.num_layers) {
            options.tensor_parallel = tp;
            options.pipeline_stages = devices / tp;
        }
        const char* kind =
            std::array{"host", "sim:h100", "sim:a40"}[static_cast<size_t>(pick(0, 2))];
        Machine machine =
            build_machine(parse_devices(fmt::format("{}[0-{}]", kind, devices - 1)),
                          {2, int64_t{8} << 30, 20'000'000'000, 100'000'000'000, "x86-64-v3"});
        return make_plan(models::build_llama_graph(shape, shape.dtype), machine, workload, options);
    }

private:
    int pick(int low, int high) {
        return low + static_cast<int>(random_() % static_cast<unsigned>(high - low + 1));
    }

    models::Shape model() {
        models::Shape shape{.name = "random"};
        auto& c = shape.config;
        c.num_layers = pick(1, 6);
        c.num_kv_heads = pick(1, 6);
        c.num_heads = c.num_kv_heads * pick(1, 5);
        c.head_dim = 4 * pick(1, 8);
        c.hidden_size = 8 * pick(2, 20);
        c.intermediate_size = pick(8, 200);
        c.vocab_size = pick(10, 300);
        c.max_positions = 512;
        c.rope_theta = 1e4;
        c.tied_embeddings = pick(0, 1) == 1;
        shape.qkv_bias = pick(0, 1) == 1;
        shape.o_bias = pick(0, 1) == 1;
        shape.mlp_bias = pick(0, 1) == 1;
        shape.dtype = pick(0, 1) ? DType::kF32 : DType::kBF16;
        return shape;
    }

    std::mt19937 random_;
};

}  // namespace

TEST_CASE("1,000 random plans are sound, survive their file and fit the screen's width",
          "[planner]") {
    Drawer drawer(1);
    for (int i = 0; i < 1000; ++i) {
        INFO("plan " << i);
        Plan plan = drawer.plan();  // verifies it, too
        std::string bytes = serialize_plan(plan);
        Plan again = parse_plan(bytes, "memory");
        REQUIRE(find_violations(again).empty());
        REQUIRE(serialize_plan(again) == bytes);
        std::istringstream text(plan_to_text(plan));
        for (std::string line; std::getline(text, line);) REQUIRE(line.size() <= 100);
    }
}

}  // namespace cleave::test
