// SPDX-License-Identifier: Apache-2.0
// The lower bound lies below every plan's score: drawn over models, machines, objectives and forced shapes.
#include <array>
#include <random>

#include "models/llama_graph.h"
#include "planner/plan_views.h"
#include "planner/planner.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using namespace planner;

class Drawer {
public:
    explicit Drawer(uint32_t seed) : random_(seed) {}
    int pick(int low, int high) {
        return low + static_cast<int>(random_() % static_cast<unsigned>(high - low + 1));
    }

    models::Shape model() {
        models::Shape shape{.name = "random"};
        auto& c = shape.config;
        c.num_layers = pick(1, 6);
        c.num_kv_heads = pick(1, 4);
        c.num_heads = c.num_kv_heads * pick(1, 5);
        c.head_dim = 8 * pick(1, 16);
        c.hidden_size = 16 * pick(2, 128);
        c.intermediate_size = pick(8, 8000);
        c.vocab_size = pick(10, 30'000);
        c.max_positions = 4096;
        c.rope_theta = 1e4;
        c.tied_embeddings = pick(0, 1) == 1;
        return shape;
    }

    // Devices of one kind or of two; of some machines the rates, domains and links are drawn as well.
    Machine machine() {
        int count = pick(1, 5);
        std::string list = fmt::format(
            "{}[0-{}]", std::array{"host", "sim:h100", "sim:a40"}[static_cast<size_t>(pick(0, 2))],
            count - 1);
        if (list[0] == 's' && pick(0, 1)) list += fmt::format(",sim:mi300x[0-{}]", pick(0, 2));
        Machine m = build_machine(parse_devices(list), {8, int64_t{64} << 30, 20'000'000'000,
                                                        100'000'000'000, "x86-64-v3"});
        if (pick(0, 2) > 0) return m;
        if (m.domains.empty())
            m.domains.push_back({"drawn", int64_t{1'000'000'000} * pick(5, 5000)});
        for (Device& d : m.devices) {
            d.memory_bandwidth = int64_t{1'000'000'000} * pick(2, 3000);
            d.flops_f32 = int64_t{1'000'000'000} * pick(20, 90'000);
            d.flops_f16 = d.flops_f32 * pick(1, 8);
            d.launch_overhead_ns = pick(0, 5000);
            if (pick(0, 1)) d.memory_domain = 0;
        }
        for (Link& l : m.links) {
            l.bandwidth = int64_t{1'000'000'000} * pick(1, 900);
            l.latency_ns = pick(100, 40'000);
        }
        return m;
    }

private:
    std::mt19937 random_;
};

}  // namespace

TEST_CASE("no plan scores less than the lower bound, whatever the objective and the shape forced",
          "[planner]") {
    Drawer drawer(5);
    for (int i = 0; i < 600; ++i) {
        models::Shape shape = drawer.model();
        Machine machine = drawer.machine();
        Workload workload{.batch = drawer.pick(1, 8), .prompt_tokens = drawer.pick(1, 600)};
        workload.context = workload.prompt_tokens + drawer.pick(0, 600);
        workload.prefill_chunk = drawer.pick(1, 512);
        PlanOptions options{.objective = static_cast<Objective>(i % 3)};
        auto devices = static_cast<int>(machine.devices.size());
        int tp = drawer.pick(1, devices);
        if (drawer.pick(0, 3) > 0 && devices % tp == 0 && devices / tp <= shape.config.num_layers) {
            options.tensor_parallel = tp;
            options.pipeline_stages = devices / tp;
        }
        Plan plan =
            make_plan(models::build_llama_graph(shape, DType::kF16), machine, workload, options);
        INFO("case " << i << " on " << devices << " devices, " << plan.stages.size()
                     << " stages, objective " << objective_name(options.objective));
        REQUIRE(plan.prediction.lower_bound_ns > 0);
        REQUIRE(plan.prediction.objective_ns >= plan.prediction.lower_bound_ns);
        REQUIRE(gap(plan) >= 0);
    }
}

}  // namespace cleave::test
