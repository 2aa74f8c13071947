// SPDX-License-Identifier: Apache-2.0
// Where a prompt's activations are prepared for its products, and the memory for them.
#include <map>

#include "models/llama_graph.h"
#include "models/shapes.h"
#include "planner/gpu_tiles.h"
#include "planner/planner.h"
#include "planner/verify.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::planner;

namespace {

Plan plan_on(const char* devices, DType dtype, DType activations = DType::kF32,
             int64_t chunk = 512) {
    Workload workload;
    workload.context = 4096;
    workload.prompt_tokens = workload.prefill_chunk = chunk;
    workload.activation_dtype = activations;
    return make_plan(models::build_llama_graph(models::find_shape("tinyllama-1.1b").value(), dtype),
                     build_machine(parse_devices(devices), HostFacts{}), workload, {});
}

// Products of a phase that have scratch, by their kind.
std::map<KernelKind, int> prepared(const Plan& plan, bool is_prefill) {
    std::map<KernelKind, int> found;
    for (const Step& step : plan.phase(is_prefill).steps)
        if (const Compute* c = step.compute(); c && c->scratch.valid() && has_many_tokens(c->tile))
            if (c->kernel != KernelKind::kAttention) ++found[c->kernel];
    return found;
}

}  // namespace

TEST_CASE("a prompt's products have scratch for what is prepared, and a token's have none",
          "[planner]") {
    const std::map<KernelKind, int> all{{KernelKind::kNormQkvRopeAppend, 22},
                                        {KernelKind::kLinear, 44},
                                        {KernelKind::kNormGateUp, 22}};
    for (const char* device : {"sim:h100[0]", "sim:a100-80[0]"}) {
        const Plan plan = plan_on(device, DType::kBF16);
        CHECK(prepared(plan, true) == all);
        CHECK(prepared(plan, false).empty());
        // The widest input, of gate and up's 5632 results, in 16 bits, behind attention's counters.
        CHECK(plan.memory[0].scratch >= kCounterBytes + 512 * 5632 * 2);
        CHECK(plan.memory[0].scratch < (int64_t{16} << 20));
        CHECK(find_violations(plan).empty());
        Plan broken = plan;
        for (Buffer& buffer : broken.buffers)
            if (buffer.name == "scratch") buffer.size = 512 * 5632 * 2 - 1;
        bool named = false;
        for (const Violation& v : find_violations(broken)) named |= v.rule == "scratch-size";
        CHECK(named);
    }
    // No asynchronous copies, or weights that are staged as f32.
    CHECK(prepared(plan_on("sim:mi300x[0]", DType::kBF16), true).empty());
    CHECK(prepared(plan_on("sim:h100[0]", DType::kF32), true).empty());
    // Few tokens.
    CHECK(prepared(plan_on("sim:h100[0]", DType::kBF16, DType::kF32, 32), true).empty());
    // Activations that have the type already are read where they lie, unless a norm comes first.
    const std::map<KernelKind, int> normed{{KernelKind::kNormQkvRopeAppend, 22},
                                           {KernelKind::kNormGateUp, 22}};
    CHECK(prepared(plan_on("sim:h100[0]", DType::kBF16, DType::kBF16), true) == normed);
    CHECK(prepared(plan_on("sim:h100[0]", DType::kF16, DType::kBF16), true) == all);
}

TEST_CASE("a ring has the stages that fit, and leaves room for a second block where that pays",
          "[planner]") {
    DeviceLimits limits;
    limits.registers_per_block = 65536;
    limits.max_threads_per_block = 1024;
    limits.warp_width = 32;
    limits.num_compute_units = 132;
    const auto ring = [&](int64_t kib, bool warpgroups, bool prepared, int64_t tokens) {
        limits.shared_memory_per_block = kib * 1024;
        ProductShape shape{4096, 14336, tokens, 2};
        shape.warpgroups = warpgroups;
        shape.prepared = prepared;
        const Tile tile = product_tile(limits, shape);
        return std::tuple(tile.tokens, slice_stages(limits, shape, tile));
    };
    using Ring = std::tuple<int64_t, int64_t>;
    CHECK(ring(227, true, false, 2048) == Ring{128, 2});
    CHECK(ring(227, true, true, 2048) == Ring{256, 4});  // no second block, by its registers
    CHECK(ring(227, true, true, 130) == Ring{128, 3});   // two blocks of 96 KiB
    CHECK(ring(163, false, true, 2048) == Ring{128, 4});
    CHECK(ring(99, false, true, 2048) == Ring{128, 3});
    CHECK(ring(48, false, true, 2048) == Ring{128, 3});  // 128 x 64
    CHECK(ring(16, false, true, 2048) == Ring{64, 2});
}
