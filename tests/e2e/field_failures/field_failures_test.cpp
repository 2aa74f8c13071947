// SPDX-License-Identifier: Apache-2.0
// Failures that users of other tools met in the field: each test describes the wrong behaviour in a
// sentence, and shows what Cleave does instead, on plans alone: make_plan, and verify_plan on plans
// with that very fault put in.
#include <algorithm>
#include <set>

#include "models/llama_graph.h"
#include "models/shapes.h"
#include "planner/machine/build_machine.h"
#include "planner/planner.h"
#include "planner/tiles/gpu.h"
#include "planner/verify/verify.h"
#include "tests/planner/support/machines.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::planner;
using Catch::Matchers::Contains;

namespace {

Plan shaped_plan(const Graph& graph, const std::string& devices, int tp, int pp,
                 Workload workload = {}) {
    PlanOptions options;
    options.tensor_parallel = tp;
    options.pipeline_stages = pp;
    return make_plan(graph, test::machine_of(devices), workload, options);
}

Graph llama_2_70b() {
    return models::build_llama_graph(*models::find_shape("llama-2-70b"), DType::kF16);
}

// Every device that a step, a weight, a table, a cache or a buffer of the plan names.
std::set<int> devices_named(const Plan& plan) {
    std::set<int> named;
    auto name = [&](DeviceId device) { named.insert(static_cast<int>(device.value)); };
    for (const Stage& s : plan.stages)
        for (DeviceId d : s.devices) name(d);
    for (const Buffer& b : plan.buffers) name(b.device);
    for (const WeightShard& s : plan.weights) name(s.device);
    for (const RopeShard& s : plan.rope_tables) name(s.device);
    for (const KvSlab& s : plan.kv_slabs) name(s.device);
    for (const Phase* phase : {&plan.prefill, &plan.decode}) {
        for (const PlacedValue& v : phase->values) name(v.device);
        for (const Step& step : phase->steps) {
            if (const Compute* c = step.compute()) name(c->device);
            if (const Collective* c = step.collective())
                for (DeviceId d : c->group) name(d);
        }
    }
    name(plan.output_device);
    return named;
}

std::set<std::string> rules_broken(const Plan& plan) {
    std::set<std::string> rules;
    for (const Violation& v : find_violations(plan)) rules.insert(v.rule);
    return rules;
}

// Rows of a weight on each device, in device order.
std::vector<Range> rows_of_weight(const Plan& plan, const std::string& name) {
    std::vector<std::pair<DeviceId, Range>> found;
    for (const WeightShard& s : plan.weights)
        if (plan.graph.weight(s.weight).name == name) found.emplace_back(s.device, s.rows);
    std::sort(found.begin(), found.end(), [](auto& a, auto& b) { return a.first < b.first; });
    std::vector<Range> rows;
    for (auto& [device, range] : found) rows.push_back(range);
    return rows;
}

const importer::Op& op_named(const Graph& graph, const std::string& name) {
    for (const importer::Op& op : graph.ops)
        if (op.name == name) return op;
    throw UserError("no operator {}", name);
}

}  // namespace

// A tool sharded a 70B model eight ways and wrote code for a device that nobody had declared.
// Cleave: the plan names the declared devices, all of them and no other, and a plan that names one
// more is refused.
TEST_CASE("an eight-way plan of 70B names its eight devices and no other", "[e2e]") {
    Plan plan = shaped_plan(llama_2_70b(), "sim:h100[0-7]", 8, 1);
    CHECK(devices_named(plan) == std::set<int>{0, 1, 2, 3, 4, 5, 6, 7});
    CHECK(find_violations(plan).empty());

    plan.machine.devices.pop_back();  // seven are declared, and the plan refers to the eighth
    CHECK(rules_broken(plan).count("device") == 1);
    CHECK_THAT(test::user_error([&] { verify_plan(plan); }),
               Contains("device 7 is not declared, the machine has 7"));
}

// A rotary table of 128 x 32 was read by two pipeline stages and bound to the first: the tool moved
// it back and forth between the two and never settled. Cleave: a constant that two devices read
// becomes a replica on each, and a stage without its own is refused.
TEST_CASE("a rotary table that two stages read lies on both", "[e2e]") {
    models::Shape shape = *models::find_shape("stories-260k");
    shape.config.num_heads = shape.config.num_kv_heads = 2;
    shape.config.head_dim = 64;  // 32 pairs
    shape.config.max_positions = 128;
    Workload workload;
    workload.context = 128;
    workload.prompt_tokens = 64;
    Plan plan =
        shaped_plan(models::build_llama_graph(shape, DType::kF32), "sim:h100[0-1]", 1, 2, workload);
    REQUIRE(plan.graph.rope_tables.size() == 1);
    CHECK(plan.graph.rope_tables[0].rotary_dim / 2 == 32);
    REQUIRE(plan.rope_tables.size() == 2);
    CHECK(plan.rope_tables[0].device != plan.rope_tables[1].device);
    size_t reads = 0;
    for (const Phase* phase : {&plan.prefill, &plan.decode})
        for (const Step& step : phase->steps)
            if (const Compute* c = step.compute())
                for (RopeShardId table : c->rope_tables) {
                    ++reads;
                    CHECK(plan.rope_tables[table.index()].device == c->device);
                }
    CHECK(reads >= 2 * static_cast<size_t>(shape.config.num_layers));

    for (Step& step : plan.prefill.steps)  // all bound to the first stage's
        if (auto* c = std::get_if<Compute>(&step.action))
            for (RopeShardId& table : c->rope_tables) table = RopeShardId(0);
    CHECK(rules_broken(plan).count("rope-missing") == 1);
}

// Attention in f16 with the rotation fused into it asked for 286,720 bytes of shared memory a block
// on a card that has 65,536; the launch failed on the device. Cleave: tiles follow from the
// device's limits by arithmetic, so they shrink on a device that has less. A plan that asks
// for more than the device has is refused before anything is compiled.
TEST_CASE("a launch never asks for more shared memory than its device has", "[e2e]") {
    Graph graph = llama_2_70b();
    Plan large = shaped_plan(graph, "sim:h100[0-3]", 4, 1);
    Plan small = shaped_plan(graph, "sim:mi210[0-3]", 4, 1);
    auto most_of_attention = [](const Plan& plan) {
        int64_t most = 0;
        for (const Phase* phase : {&plan.prefill, &plan.decode})
            for (const Step& step : phase->steps)
                if (const Compute* c = step.compute()) {
                    const DeviceLimits& limits = plan.machine.device(c->device).limits;
                    CHECK(c->tile.shared_bytes <= limits.shared_memory_per_block);
                    CHECK(c->tile.threads <= limits.max_threads_per_block);
                    if (c->kernel == KernelKind::kAttention)
                        most = std::max(most, c->tile.shared_bytes);
                }
        return most;
    };
    REQUIRE(small.machine.devices[0].limits.shared_memory_per_block == 65'536);
    int64_t roomy = most_of_attention(large), tight = most_of_attention(small);
    CHECK(tight > 0);
    CHECK(tight <= 65'536);
    CHECK(roomy >= tight);
    // A tile of the same kernel that asks for what the tool asked for: 286,720 bytes and more.
    AttentionShape shape{.heads = 16,
                         .kv_heads = 2,
                         .group = 8,
                         .head_dim = 128,
                         .v_head_dim = 128,
                         .element_bytes = 2,
                         .tokens = 512,
                         .context = 4096,
                         .prefill = true};
    const DeviceLimits& limits = small.machine.devices[0].limits;
    Tile wide = attention_tile(limits, shape);
    CHECK(attention_shared_bytes(limits, shape, wide) == wide.shared_bytes);
    while (attention_shared_bytes(limits, shape, wide) < 286'720) wide.depth *= 2, wide.tokens *= 2;
    for (Step& step : small.prefill.steps)
        if (auto* c = std::get_if<Compute>(&step.action); c && c->kernel == KernelKind::kAttention)
            c->tile.shared_bytes = attention_shared_bytes(limits, shape, wide);
    CHECK(rules_broken(small).count("tile-limits") == 1);
    CHECK_THAT(test::user_error([&] { verify_plan(small); }), Contains("sim:mi210[0] has 65536"));
}

// Llama-2-70B was meant for eight shards and started on four cards of 48 GB: it loaded for minutes
// and ended in an index out of bounds on a device. Cleave: eight ways on four devices is refused
// before anything loads; without that it is planned over the four, and every range of every shard
// is proved to be within its matrix.
TEST_CASE("70B meant for eight shards is refused or planned over the four devices there are",
          "[e2e]") {
    Graph graph = llama_2_70b();
    CHECK_THAT(test::user_error([&] { shaped_plan(graph, "sim:a40[0-3]", 8, 0); }),
               Contains("$tensor_parallel 8") && Contains("4 devices"));

    Plan plan = shaped_plan(graph, "sim:a40[0-3]", 4, 1);
    CHECK(devices_named(plan) == std::set<int>{0, 1, 2, 3});
    CHECK(find_violations(plan).empty());
    for (const DeviceMemory& m : plan.memory) CHECK(m.needed() <= m.capacity);
    for (const char* op : {"embedding", "lm_head", "layers.79.q_proj"}) {
        const importer::Weight& weight = graph.weight(op_named(graph, op).weights[0]);
        INFO(op);
        std::vector<Range> rows = rows_of_weight(plan, weight.name);
        REQUIRE(rows.size() == 4);
        int64_t next = 0;
        for (Range r : rows) {
            CHECK(r.begin == next);
            next = r.end;
        }
        CHECK(next == weight.shape[0]);
    }

    // The shard that the fifth of eight devices would have held, past the end of the matrix.
    WeightShard& shard = plan.weights.back();
    int64_t rows = shard.rows.size(), all = graph.weight(shard.weight).shape[0];
    shard.rows = {all, all + rows};
    CHECK(rules_broken(plan).count("weight-box") == 1);
}

// Devices 4 to 7 of eight were wanted, and the tool only had "so many, from device 0, in order".
// Cleave: the list names any devices in any order; the plan runs on these, in that order, and on no
// others.
TEST_CASE("devices four to seven of eight are planned as they are named, in that order", "[e2e]") {
    Graph graph = llama_2_70b();
    for (auto [list, indices] : {std::pair{"sim:h100[4-7]", std::vector<int>{4, 5, 6, 7}},
                                 {"sim:h100[6,4,7,5]", std::vector<int>{6, 4, 7, 5}}}) {
        Plan plan = shaped_plan(graph, list, 1, 4);
        REQUIRE(plan.stages.size() == 4);
        for (size_t s = 0; s < 4; ++s) {
            INFO(list << ", stage " << s);
            REQUIRE(plan.stages[s].devices.size() == 1);
            const planner::DeviceInfo& device = plan.machine.device(plan.stages[s].devices[0]);
            CHECK(device.index == indices[s]);
            CHECK(device.name == fmt::format("sim:h100[{}]", indices[s]));
        }
        CHECK(plan.machine.devices.size() == 4);
    }
}
