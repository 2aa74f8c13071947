// SPDX-License-Identifier: Apache-2.0
// Where a prompt's activations are prepared for its products, and the memory for them.
#include <algorithm>
#include <cstdlib>
#include <map>

#include "models/llama_graph.h"
#include "models/shapes.h"
#include "planner/cost/launch_times.h"
#include "planner/cost/reached.h"
#include "planner/machine/build_machine.h"
#include "planner/planner.h"
#include "planner/tiles/gpu.h"
#include "planner/verify/verify.h"
#include "tests/planner/support/machines.h"
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
                     test::machine_of(devices, test::small_host(2, 16)), workload, {});
}

// Launches of a phase that come by their activations in that way, by their kind.
std::map<KernelKind, int> count(const Plan& plan, bool is_prefill, ActivationPath path) {
    std::map<KernelKind, int> found;
    for (const Step& step : plan.phase(is_prefill).steps)
        if (const Compute* c = step.compute(); c && c->activations == path) ++found[c->kernel];
    return found;
}
std::map<KernelKind, int> prepared(const Plan& plan, bool is_prefill) {
    return count(plan, is_prefill, ActivationPath::kPrepared);
}
std::map<KernelKind, int> copied(const Plan& plan, bool is_prefill) {
    return count(plan, is_prefill, ActivationPath::kCopied);
}

Compute& find(Phase& phase, KernelKind kernel) {
    for (Step& step : phase.steps)
        if (auto* c = std::get_if<Compute>(&step.action); c && c->kernel == kernel) return *c;
    FAIL("no such launch");
    std::abort();
}

bool breaks(const Plan& plan, const std::string& rule) {
    const std::vector<Violation> found = find_violations(plan);
    return std::any_of(found.begin(), found.end(),
                       [&](const Violation& v) { return v.rule == rule; });
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
            if (buffer.role == BufferRole::kScratch) buffer.size = 512 * 5632 * 2 - 1;
        CHECK(breaks(broken, "scratch-size"));
    }
    // Rows of f16 have a factor each behind them.
    for (DType dtype : {DType::kF16, DType::kF8E4M3}) {
        Plan plan = plan_on("sim:a100-80[0]", dtype);
        CHECK(prepared(plan, true) == all);
        CHECK(plan.memory[0].scratch >= kCounterBytes + 512 * (5632 * 2 + 4));
        CHECK(find_violations(plan).empty());
        for (Buffer& buffer : plan.buffers)
            if (buffer.role == BufferRole::kScratch) buffer.size = 512 * (5632 * 2 + 4) - 1;
        CHECK(breaks(plan, "scratch-size"));
    }
    // No asynchronous copies, or weights that are staged as f32.
    CHECK(prepared(plan_on("sim:mi300x[0]", DType::kBF16), true).empty());
    CHECK(prepared(plan_on("sim:h100[0]", DType::kF32), true).empty());
    // Few tokens.
    CHECK(prepared(plan_on("sim:h100[0]", DType::kBF16, DType::kF32, 32), true).empty());
    // Activations that have the type already are read where they lie, unless a norm comes first.
    const std::map<KernelKind, int> normed{{KernelKind::kNormQkvRopeAppend, 22},
                                           {KernelKind::kNormGateUp, 22}};
    const Plan same_type = plan_on("sim:h100[0]", DType::kBF16, DType::kBF16);
    CHECK(prepared(same_type, true) == normed);
    CHECK(copied(same_type, true) == std::map<KernelKind, int>{{KernelKind::kLinear, 44}});
    CHECK(copied(same_type, false).empty());
    CHECK(prepared(plan_on("sim:h100[0]", DType::kF16, DType::kBF16), true) == all);
}

TEST_CASE("a product comes by its activations in no way that its operands do not allow",
          "[planner]") {
    const Plan sound = plan_on("sim:h100[0]", DType::kBF16, DType::kBF16);
    REQUIRE(find_violations(sound).empty());
    const auto is_caught = [&](auto&& change) {
        Plan plan = sound;
        change(plan);
        return breaks(plan, "activation-path");
    };
    const auto set = [](Phase& phase, KernelKind kernel, ActivationPath path) {
        find(phase, kernel).activations = path;
    };
    using enum ActivationPath;
    // With a norm in front, of a token, of an operator that is no product, of few tokens in a
    // block.
    CHECK(is_caught([&](Plan& p) { set(p.prefill, KernelKind::kNormGateUp, kCopied); }));
    CHECK(is_caught([&](Plan& p) { set(p.decode, KernelKind::kLinear, kCopied); }));
    CHECK(is_caught([&](Plan& p) { set(p.decode, KernelKind::kNormGateUp, kPrepared); }));
    CHECK(is_caught([&](Plan& p) { set(p.prefill, KernelKind::kAttention, kPrepared); }));
    CHECK(is_caught([&](Plan& p) { find(p.prefill, KernelKind::kLinear).tile.tokens = 8; }));
    // A ring of four stages is for activations that are copied.
    Plan deep = sound;
    REQUIRE(find(deep.prefill, KernelKind::kNormGateUp).tile.stages > 2);
    set(deep.prefill, KernelKind::kNormGateUp, kConverted);
    CHECK(breaks(deep, "tile-loop"));
    // Without scratch, or on a device without such copies.
    CHECK(is_caught([&](Plan& p) { find(p.prefill, KernelKind::kNormGateUp).scratch = {}; }));
    CHECK(is_caught([&](Plan& p) { p.machine.devices[0].arch = "gfx942"; }));
    // Other types, and rows that begin in the middle of a copy.
    CHECK(is_caught([&](Plan& p) { p.workload.activation_dtype = DType::kF32; }));
    const auto matrix = [](Plan& p, KernelKind kernel) -> WeightShard& {
        return p.weights[find(p.prefill, kernel).weights.back().index()];
    };
    CHECK(is_caught([&](Plan& p) { matrix(p, KernelKind::kLinear).dtype = DType::kF16; }));
    CHECK(is_caught([&](Plan& p) { matrix(p, KernelKind::kNormGateUp).dtype = DType::kF32; }));
    CHECK(is_caught([&](Plan& p) { matrix(p, KernelKind::kLinear).columns.begin += 4; }));
    CHECK(is_caught([&](Plan& p) { matrix(p, KernelKind::kNormGateUp).columns.end = 4; }));
    // The slower way is always there.
    Plan converted = sound;
    for (Step& step : converted.prefill.steps)
        if (auto* c = std::get_if<Compute>(&step.action)) {
            c->activations = kConverted;
            if (multiplies_tiles(c->tile)) c->tile.stages = std::min<int64_t>(c->tile.stages, 2);
        }
    CHECK(find_violations(converted).empty());
}

TEST_CASE("a launch that prepares activations costs what it reads and writes, and a launch more",
          "[planner]") {
    for (auto [devices, dtype, activations, launches] :
         {std::tuple("sim:h100[0]", DType::kBF16, DType::kF32, 88),
          std::tuple("sim:a100-80[0-3]", DType::kF16, DType::kBF16, 4 * 88),
          std::tuple("sim:rtx4090[0-2]", DType::kBF16, DType::kBF16, 3 * 44),
          std::tuple("simt:sm_90a[0]", DType::kBF16, DType::kF32, 88),
          std::tuple("sim:h100[0]", DType::kF32, DType::kF32, 0),
          std::tuple("sim:mi300x[0]", DType::kBF16, DType::kF32, 0)}) {
        CAPTURE(devices, dtype, activations);
        const Plan plan = plan_on(devices, dtype, activations);
        const Analysis analysis = analyse(plan.graph, plan.workload);
        const LaunchCosts costs(analysis, plan.machine, plan.workload);
        std::map<OpId, size_t> group_of;
        for (size_t g = 0; g < analysis.groups.size(); ++g)
            group_of[analysis.groups[g].ops.front()] = g;
        int prepared = 0;
        for (const Step& step : plan.prefill.steps) {
            const Compute* c = step.compute();
            if (!c) continue;
            const auto ns = [&](std::optional<ActivationPath> path) {
                return costs
                    .time(c->device, group_of.at(c->ops.front()),
                          {c->flops, c->weight_bytes, c->activation_bytes}, true, 0, path)
                    .ns;
            };
            CHECK(step.predicted_ns == ns(c->activations));
            // The search expects of a piece what its tile turns out to be.
            CHECK(step.predicted_ns == ns({}));
            if (c->activations != ActivationPath::kPrepared) continue;
            ++prepared;
            const DeviceInfo& device = plan.machine.device(c->device);
            const int64_t depth = plan.weights[c->weights.back().index()].columns.size();
            const int64_t factor = dtype == DType::kF16 ? 4 : 0;
            const auto moved =
                static_cast<double>(512 * (depth * (dtype_bytes(activations, 1) + 2) + factor));
            const auto bandwidth = static_cast<double>(device.memory_bandwidth);
            const auto launch = static_cast<double>(device.launch_overhead_ns);
            const double expected =
                device.kind == DeviceKind::kSimt
                    ? launch + moved * 1e9 / (0.85 * bandwidth)
                    : KernelTimes::h200().plain_ns(0, moved,
                                                   {1, reached_by(device).bandwidth * bandwidth,
                                                    reached_by(device).latency * launch / 3000});
            const auto more =
                static_cast<double>(step.predicted_ns - ns(ActivationPath::kConverted));
            CHECK(more == Approx(expected).margin(1));
            CHECK(more > moved * 1e9 / bandwidth);
        }
        CHECK(prepared == launches);
    }
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
        return std::tuple(tile.tokens, tile.stages);
    };
    using Ring = std::tuple<int64_t, int64_t>;
    CHECK(ring(227, true, false, 2048) == Ring{128, 2});
    CHECK(ring(227, true, true, 2048) == Ring{256, 4});  // no second block, by its registers
    CHECK(ring(227, true, true, 384) == Ring{128, 3});   // two blocks of 96 KiB
    CHECK(ring(163, false, true, 2048) == Ring{128, 4});
    CHECK(ring(99, false, true, 2048) == Ring{128, 3});
    CHECK(ring(48, false, true, 2048) == Ring{128, 3});  // 128 x 64
    CHECK(ring(16, false, true, 2048) == Ring{64, 2});
}
