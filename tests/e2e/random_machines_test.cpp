// SPDX-License-Identifier: Apache-2.0
// 200 random machines x models: every plan verifies and gives, on `host` devices, the tokens of one
// device. Widths of the models are few, so that each kernel is compiled once; layers, devices,
// their speeds and memory, objectives, shapes, pins, batches and chunks are drawn.
#include <map>
#include <random>
#include <set>

#include "planner/machine/build_machine.h"
#include "planner/verify/verify.h"
#include "runtime/generate/generate.h"
#include "tests/e2e/support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;

namespace {

using Prompts = std::vector<std::vector<int32_t>>;
using Tokens = std::vector<std::vector<int32_t>>;

constexpr int kCases = 200, kNewTokens = 4;

class Drawer {
public:
    explicit Drawer(uint32_t seed) : random_(seed) {}
    int pick(int low, int high) {
        return low + static_cast<int>(random_() % static_cast<unsigned>(high - low + 1));
    }

    // Of two widths, with 1 to 4 layers: 8 models in all.
    models::Shape model() {
        models::Shape shape = small_shape();
        auto& c = shape.config;
        c.num_layers = pick(1, 4);
        // Equal shards of 2 to 6 devices are of one size, each a set of kernels to compile; unequal
        // ones are drawn below.
        c.intermediate_size = c.vocab_size = 120;
        if (pick(0, 1)) {
            c.hidden_size = 40;
            c.num_heads = 5;
            c.num_kv_heads = 1;
            c.head_dim = 8;
        }
        return shape;
    }

    // In a quarter of the machines the first is twice as fast as the others, and memories differ.
    planner::Machine machine(int devices) {
        planner::HostFacts facts{2, int64_t{4} << 30, 20'000'000'000, 100'000'000'000, ""};
        planner::Machine m = planner::build_machine(
            planner::parse_devices(fmt::format("host[0-{}]", devices - 1)), facts);
        bool unequal = pick(0, 3) == 0;
        for (planner::DeviceInfo& d : m.devices) {
            if (!unequal) continue;
            int factor = d.index == 0 ? 2 : 1;
            d.memory_bandwidth *= factor;
            d.flops_f32 *= factor;
            d.memory_bytes = (int64_t{16} << 20) * pick(1, 4);
            d.launch_overhead_ns = pick(0, 1) * 200;
        }
        for (planner::Link& l : m.links) l.latency_ns = pick(0, 1) ? 10 : 2000;
        return m;
    }

    planner::PlanOptions options(const importer::Graph& graph, int devices) {
        planner::PlanOptions o;
        o.objective =
            pick(0, 2) == 0 ? planner::Objective::kThroughput : planner::Objective::kLatency;
        int kind = pick(0, 3), tp = pick(1, devices);
        auto layers = static_cast<int>(graph.config.num_layers);
        if (kind == 0 && devices % tp == 0 && devices / tp <= layers) o.tensor_parallel = tp;
        if (kind == 1) o.pipeline_stages = pick(1, std::min(devices, 2 * layers));
        if (kind == 2 && devices > 1) {
            // The first and the last layer with a device, which may be the same: pins that return.
            o.tensor_parallel = 0;
            o.pins = {{"layers.0", fmt::format("host[{}]", pick(0, devices - 1))}};
            if (layers > 2) {
                o.pins.push_back({"layers.1", fmt::format("host[{}]", pick(0, devices - 1))});
                o.pins.push_back({fmt::format("layers.{}", layers - 1), o.pins[0].device});
            }
        }
        return o;
    }

    Prompts prompts(const importer::Graph& graph, int count) {
        Prompts all(static_cast<size_t>(count));
        for (auto& prompt : all) {
            prompt.resize(static_cast<size_t>(pick(1, 9)));
            for (int32_t& token : prompt)
                token = pick(0, static_cast<int>(graph.config.vocab_size) - 1);
        }
        return all;
    }

private:
    std::mt19937 random_;
};

Tokens run(planner::Plan plan, const Prompts& prompts) {
    runtime::SessionOptions session_options;
    session_options.poison = true;
    runtime::Session session(plan, session_options);
    runtime::GenerateOptions options;
    options.max_new_tokens = kNewTokens;
    Tokens tokens;
    for (auto& s : runtime::generate(session, plan, prompts, options).sequences)
        tokens.push_back(s.token_ids);
    return tokens;
}

// Whether a device has stages with those of others between them.
bool returns(const planner::Plan& plan) {
    std::set<planner::DeviceId> left;
    for (size_t s = 0; s < plan.stages.size(); ++s) {
        for (planner::DeviceId d : plan.stages[s].devices)
            if (left.count(d)) return true;
        if (s > 0)
            left.insert(plan.stages[s - 1].devices.begin(), plan.stages[s - 1].devices.end());
    }
    return false;
}

}  // namespace

TEST_CASE("200 plans of random models for random machines run to the tokens of one device",
          "[e2e]") {
    Drawer drawer(11);
    std::map<std::pair<int64_t, int64_t>, importer::Graph> models;  // by width and layers
    int wide = 0, returning = 0, staged = 0;
    for (int i = 0; i < kCases; ++i) {
        models::Shape shape = drawer.model();
        auto [at, fresh] = models.try_emplace({shape.config.hidden_size, shape.config.num_layers});
        if (fresh) at->second = random_model(shape, 7);
        const importer::Graph& graph = at->second;
        // Odd counts for one width and even ones for the other: each count is a set of kernels to
        // compile.
        constexpr int kCounts[2][3] = {{1, 3, 5}, {2, 4, 6}};
        int devices = kCounts[shape.config.num_kv_heads > 1][drawer.pick(0, 2)];
        planner::Machine machine = drawer.machine(devices);
        planner::PlanOptions options = drawer.options(graph, devices);
        planner::Workload workload;
        workload.batch = drawer.pick(1, 3);
        workload.prompt_tokens = 8;
        workload.context = 16;
        workload.prefill_chunk = drawer.pick(0, 1) ? 4 : 64;
        if (i % 3 == 0) workload.dtype = DType::kInt4;  // with activations rounded to int8
        Prompts prompts = drawer.prompts(graph, static_cast<int>(workload.batch));
        INFO("case " << i << ": " << shape.config.num_layers << " layers of "
                     << shape.config.hidden_size << " on " << devices << " devices, tp "
                     << options.tensor_parallel << " pp " << options.pipeline_stages << ", "
                     << options.pins.size() << " pins" << (workload.dtype ? ", int4" : ""));
        planner::Plan plan = planner::make_plan(graph, machine, workload, options);
        REQUIRE(planner::find_violations(plan).empty());
        planner::Plan alone = planner::make_plan(
            graph,
            planner::build_machine(planner::parse_devices("host"),
                                   {2, int64_t{4} << 30, 20'000'000'000, 100'000'000'000, ""}),
            workload, {});
        REQUIRE(run(plan, prompts) == run(alone, prompts));
        staged += plan.stages.size() > 1;
        returning += returns(plan);
        for (const planner::Stage& s : plan.stages)
            if (s.devices.size() > 1) {
                ++wide;
                break;
            }
    }
    // The draw is of use: a good part splits operators, layers, and comes back to a device.
    CHECK(wide > 20);
    CHECK(staged > 40);
    CHECK(returning > 10);
}
