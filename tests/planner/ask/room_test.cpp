// SPDX-License-Identifier: Apache-2.0
// The room of a plan is exact: its placement fits at each figure and not at one more, by the
// accounts of its own builder and by new plans of the same placement.
#include "planner/ask/room.h"

#include <array>

#include "models/llama_graph.h"
#include "models/shapes.h"
#include "planner/plan/kv_room.h"
#include "planner/planner.h"
#include "tests/planner/support/machines.h"
#include "tests/planner/support/random_cases.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using namespace planner;

bool fits(const std::vector<DeviceMemory>& memory) {
    return std::ranges::all_of(memory, [](const DeviceMemory& m) { return m.free() >= 0; });
}

// Its devices have little more memory than a first plan of it takes, so that numbers are small.
Plan tight_plan(Drawer& d, Workload workload) {
    models::Shape shape = d.model({.layers = 5,
                                   .kv_heads = 4,
                                   .queries_of_a_kv_head = 3,
                                   .head_dims = 8,
                                   .head_dim_step = 8,
                                   .hidden_steps = 20,
                                   .intermediate = 200,
                                   .vocab = 300,
                                   .bf16 = true});
    const auto graph = models::build_llama_graph(shape, shape.dtype);
    const char* kind = d.one_of(std::array{"host", "sim:h100", "sim:a40"});
    Machine machine = machine_of(fmt::format("{}[0-{}]", kind, d.pick(0, 5)), small_host(2));
    PlanOptions options{.objective = static_cast<Objective>(d.pick(0, 1))};
    const Plan loose = make_plan(graph, machine, workload, options);
    for (int64_t slack = d.pick(1, 32) * 200'000;; slack *= 2) {
        for (size_t i = 0; i < machine.devices.size(); ++i)
            machine.devices[i].memory_bytes = loose.memory[i].needed() + slack;
        try {
            return make_plan(graph, machine, workload, options);
        } catch (const DoesNotFit&) {  // the search looks at no more than some placements
            continue;
        }
    }
}

Workload drawn_workload(Drawer& d) {
    Workload workload{.batch = d.pick(1, 6), .prompt_tokens = d.pick(1, 64)};
    workload.context = workload.prompt_tokens + d.pick(0, 100);
    workload.prefill_chunk = d.pick(1, 100);
    return workload;
}

}  // namespace

TEST_CASE("a plan's placement, read from its steps, has the plan's memory to the byte",
          "[planner]") {
    Drawer drawer(7);
    for (int i = 0; i < 150; ++i) {
        INFO("plan " << i);
        const Plan plan = tight_plan(drawer, drawn_workload(drawer));
        const auto again = memory_at(plan, plan.workload.batch, plan.workload.context);
        REQUIRE(again.size() == plan.memory.size());
        for (size_t d = 0; d < again.size(); ++d) {
            CHECK(again[d].needed() == plan.memory[d].needed());
            CHECK(again[d].kv == plan.memory[d].kv);
            CHECK(again[d].activations == plan.memory[d].activations);
        }
    }
}

TEST_CASE("a placement fits at its room, and at one more it does not", "[planner]") {
    Drawer drawer(8);
    for (int i = 0; i < 100; ++i) {
        INFO("plan " << i);
        const Plan plan = tight_plan(drawer, drawn_workload(drawer));
        const Room room = room_of(plan);
        const Workload& w = plan.workload;
        REQUIRE(room.has_kv());
        CHECK(room.whole_contexts);
        CHECK(room.max_sequences >= w.batch);
        CHECK(room.max_context >= w.context);
        CHECK(fits(memory_at(plan, room.max_sequences, w.context)));
        CHECK(fits(memory_at(plan, w.batch, room.max_context)));
        if (room.sequences_bound.valid()) {
            const auto over = memory_at(plan, room.max_sequences + 1, w.context);
            CHECK(over[room.sequences_bound.index()].free() < 0);
        }
        if (room.context_bound.valid()) {
            const auto over = memory_at(plan, w.batch, room.max_context + 1);
            CHECK(over[room.context_bound.index()].free() < 0);
        }
        CHECK(room.kv_tokens == kv_tokens(kv_bound(plan)->num_blocks));
    }
}

TEST_CASE("a new plan of the same shape fits at the room's figures and at no more", "[planner]") {
    const auto graph = models::build_llama_graph(*models::find_shape("stories-260k"), DType::kF32);
    for (const auto& [devices, tp, pp] :
         {std::tuple{"host[0]", 1, 1}, {"sim:h100[0-3]", 4, 1}, {"sim:h100[0-1]", 1, 2}}) {
        INFO(devices);
        Machine machine = machine_of(devices, small_host(2));
        for (DeviceInfo& d : machine.devices) {
            d.reserved_bytes = 0;
            d.memory_bytes = int64_t{1500} << 20;
        }
        PlanOptions options{.tensor_parallel = tp, .pipeline_stages = pp};
        if (pp == 2)
            options.pins = {{"embedding", machine.devices[0].name},
                            {"layers.0-1", machine.devices[0].name},
                            {"layers.2-4", machine.devices[1].name},
                            {"lm_head", machine.devices[1].name}};
        Workload workload{.batch = 3, .prompt_tokens = 32, .context = 200};
        const Room room = room_of(make_plan(graph, machine, workload, options));
        const auto fits_in = [&](int64_t batch, int64_t context) {
            Workload w = workload;
            w.batch = batch;
            w.context = context;
            try {
                make_plan(graph, machine, w, options);
                return true;
            } catch (const DoesNotFit&) {
                return false;
            }
        };
        CHECK(room.max_sequences > 3);
        CHECK(fits_in(room.max_sequences, 200));
        CHECK_FALSE(fits_in(room.max_sequences + 1, 200));
        CHECK(fits_in(3, room.max_context));
        CHECK_FALSE(fits_in(3, room.max_context + 1));
        CHECK(room.positions == 512);
        CHECK(room.positions_end);
    }
}

TEST_CASE("a pool of fewer tokens than whole contexts is no less room", "[planner]") {
    const auto graph = models::build_llama_graph(*models::find_shape("stories-260k"), DType::kF32);
    Machine machine = machine_of("host[0]", small_host(2));
    machine.devices[0].reserved_bytes = 0;
    machine.devices[0].memory_bytes = int64_t{32} << 20;
    Workload workload{.batch = 64, .prompt_tokens = 32, .context = 512, .prefill_chunk = 64};
    workload.kv_tokens = 1024;
    const Plan plan = make_plan(graph, machine, workload, {});
    const Room room = room_of(plan);
    CHECK_FALSE(room.whole_contexts);
    CHECK(room.max_sequences > 0);
    CHECK(room.max_sequences < 64);
    CHECK(room.kv_tokens_now == 1024);
    CHECK(fits(memory_at(plan, room.max_sequences, 512)));
    CHECK_FALSE(fits(memory_at(plan, room.max_sequences + 1, 512)));
}

}  // namespace cleave::test
