// SPDX-License-Identifier: Apache-2.0
// What launches cost: the fitted times on the GPU they were fitted to, the measured rates on hosts,
// and floors below any division of a group.
#include <random>

#include "models/llama_graph.h"
#include "planner/cost/launch_times.h"
#include "planner/machine/build_machine.h"
#include "planner/planner.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using namespace planner;

importer::Graph llama(const char* name, DType dtype) {
    return models::build_llama_graph(*models::find_shape(name), dtype);
}

size_t find_group(const Analysis& analysis, KernelKind kernel) {
    for (size_t g = 0; g < analysis.groups.size(); ++g)
        if (analysis.groups[g].kernel == kernel) return g;
    FAIL("no such group");
    return 0;
}

HostFacts measured_host() {
    HostFacts facts{2, int64_t{16} << 30, 40'000'000'000, 1, "x86-64-v3"};
    facts.calibration.rates = {.bandwidth = 40'000'000'000,
                               .bandwidth_alone = 25'000'000'000,
                               .widening = 15'000'000'000,
                               .cache_bytes = 32 << 20,
                               .cache_bandwidth = 100'000'000'000,
                               .flops_f32 = 200'000'000'000,
                               .flops_narrow = 190'000'000'000,
                               .attention_bandwidth = 20'000'000'000,
                               .attention_flops = 50'000'000'000,
                               .launch_ns = 20'000,
                               .launch_alone_ns = 1'000};
    facts.calibration.transfer_bandwidth = facts.calibration.exchange_bandwidth = 8'000'000'000;
    facts.calibration.transfer_latency_ns = 10'000;
    facts.calibration.exchange_latency_ns = 30'000;
    return facts;
}

LaunchAmounts share(const Analysis& analysis, size_t group, Range work, const Workload& workload) {
    return launch_amounts(analysis, analysis.groups[group], work, workload, false);
}

}  // namespace

TEST_CASE("a projection on an h200 takes what the fit says for its shape", "[planner]") {
    importer::Graph graph = llama("llama-3-8b", DType::kBF16);
    Analysis analysis = analyse(graph, {});
    Workload workload{.batch = 64, .prompt_tokens = 512, .context = 4096};
    Machine machine = build_machine(parse_devices("sim:h200[0]"), {});
    LaunchCosts costs(analysis, machine, workload);
    size_t down = find_group(analysis, KernelKind::kNormGateUp) + 1;
    REQUIRE(analysis.groups[down].kernel == KernelKind::kLinear);
    LaunchAmounts amounts = share(analysis, down, {0, 14336}, workload);
    double flops = 2.0 * 64 * 4096 * 14336;
    double bytes = static_cast<double>(
        (amounts.weight_bytes + amounts.activation_bytes).at(costs.point(false)));
    double expected = KernelTimes::h200().ns(KernelFamily::kGemm, {4096, 14336, 64}, flops, bytes,
                                             {989e12, 4800e9, 1.0});
    auto found = static_cast<double>(costs.time(DeviceId(0), down, amounts, false, 0).ns);
    CHECK(found == Approx(expected).epsilon(0.001));
}

TEST_CASE("no share of a group takes less than the floor of the group, on any device",
          "[planner]") {
    std::mt19937 random(7);
    auto pick = [&](int64_t low, int64_t high) {
        return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
    };
    HostFacts facts = measured_host();
    Machine machine =
        build_machine(parse_devices("sim:h200[0],sim:mi300x[0],sim:rtx4090[0],host[0-1]"), facts);
    int checked = 0;
    for (int i = 0; i < 40; ++i) {
        models::Shape shape = *models::find_shape(i % 2 ? "llama-3-8b" : "tinyllama-1.1b");
        auto& c = shape.config;
        c.num_layers = 1;
        c.num_kv_heads = pick(1, 12);
        c.num_heads = c.num_kv_heads * pick(1, 12);
        c.hidden_size = 64 * pick(1, 200);
        c.intermediate_size = pick(1, 50'000);
        c.vocab_size = pick(100, 100'000);
        importer::Graph graph = models::build_llama_graph(shape, DType::kBF16);
        Analysis analysis = analyse(graph, {});
        Workload workload{.batch = pick(1, 200), .prompt_tokens = pick(1, 3000)};
        workload.context = workload.prompt_tokens + pick(1, 3000);
        LaunchCosts costs(analysis, machine, workload);
        for (size_t g = 0; g < analysis.groups.size(); ++g) {
            int64_t units = analysis.groups[g].split.work.units;
            if (analysis.groups[g].split.work.whole()) continue;
            for (size_t d = 0; d < machine.devices.size(); ++d)
                for (bool is_prefill : {false, true}) {
                    LaunchCosts::Floor floor = costs.floor(DeviceId(d), g, is_prefill);
                    for (int k = 0; k < 12; ++k) {
                        int64_t size = k ? pick(1, units) : units;
                        if (k > 6) size = std::max<int64_t>(1, size / 8);
                        int64_t begin = pick(0, units - size);
                        LaunchAmounts part = share(analysis, g, {begin, begin + size}, workload);
                        auto ns = static_cast<double>(
                            costs.time(DeviceId(d), g, part, is_prefill, k % 3).ns);
                        double x = static_cast<double>(size) / static_cast<double>(units);
                        INFO(machine.devices[d].name
                             << ", " << kernel_kind_name(analysis.groups[g].kernel) << ", " << size
                             << " of " << units << (is_prefill ? ", prefill" : ", decode"));
                        REQUIRE(ns + 1 >= floor.overhead + x * floor.work);
                        REQUIRE(ns + 1 >= x * floor.alone);
                        ++checked;
                    }
                }
        }
    }
    REQUIRE(checked > 5000);
}

TEST_CASE("a host's launch costs its overhead and its bytes at the measured rate", "[planner]") {
    importer::Graph graph = llama("llama-110m", DType::kF32);
    Analysis analysis = analyse(graph, {});
    Workload workload{.batch = 1, .prompt_tokens = 256, .context = 512};
    Machine machine = build_machine(parse_devices("host[0-1]"), measured_host());
    LaunchCosts costs(analysis, machine, workload);
    size_t group = find_group(analysis, KernelKind::kNormGateUp);
    LaunchAmounts amounts =
        share(analysis, group, {0, analysis.groups[group].split.work.units}, workload);
    auto bytes = static_cast<double>(
        (amounts.weight_bytes + amounts.activation_bytes).at(costs.point(false)));
    LaunchCosts::Time all = costs.time(DeviceId(0), group, amounts, false, 1);
    CHECK(all.fixed_ns == 20'000);
    CHECK(static_cast<double>(all.ns) == Approx(20'000 + bytes / 40).epsilon(0.001));
    // With a device for each core nobody is woken.
    CHECK(costs.time(DeviceId(0), group, amounts, false, 2).fixed_ns == 1'000);
}

TEST_CASE("few tokens on a host take the longer of weights and arithmetic, and part of the other",
          "[planner]") {
    importer::Graph graph = llama("llama-3-8b", DType::kF32);
    double before = 0;
    Analysis analysis = analyse(graph, {});
    Machine machine = build_machine(parse_devices("host"), measured_host());
    const size_t gate_up = find_group(analysis, KernelKind::kNormGateUp);
    for (int64_t batch : {1, 2, 8, 9, 32}) {
        INFO(batch);
        Workload workload{.batch = batch, .prompt_tokens = 512, .context = 4096};
        LaunchCosts costs(analysis, machine, workload);
        LaunchAmounts amounts = share(analysis, gate_up, {0, 14336}, workload);
        const PassPoint& point = costs.point(false);
        const double reading =
            static_cast<double>((amounts.weight_bytes + amounts.activation_bytes).at(point)) / 40;
        const double computing = static_cast<double>(amounts.flops.at(point)) / 220;
        const double of_lesser = (batch <= 8 ? 0.7 : 0.2) * (1 - 1 / static_cast<double>(batch));
        const double ns =
            static_cast<double>(costs.time(DeviceId(0), gate_up, amounts, false, 0).ns);
        if (batch != 9)
            CHECK(ns == Approx(20'000 + std::max(reading, computing) +
                               of_lesser * std::min(reading, computing))
                            .epsilon(0.001));
        CHECK(ns >= before);
        before = ns;
    }
}

TEST_CASE("weights that fit the cache are read at the cache's rate", "[planner]") {
    Workload workload{.batch = 1, .prompt_tokens = 16, .context = 32};
    Machine machine = build_machine(parse_devices("host[0]"), measured_host());
    auto decode_ns = [&](const char* name) {
        importer::Graph graph = llama(name, DType::kF32);
        return make_plan(graph, machine, workload, {}).prediction.decode_ns_per_token;
    };
    importer::Graph graph = llama("stories-260k", DType::kF32);
    Analysis analysis = analyse(graph, {});
    LaunchCosts costs(analysis, machine, workload);
    size_t head = find_group(analysis, KernelKind::kNormLinear);
    LaunchAmounts amounts = share(analysis, head, {0, 512}, workload);
    auto bytes = static_cast<double>(
        (amounts.weight_bytes + amounts.activation_bytes).at(costs.point(false)));
    auto ns = static_cast<double>(costs.time(DeviceId(0), head, amounts, false, 1).ns);
    CHECK(ns == Approx(20'000 + bytes / 100).epsilon(0.001));
    CHECK(decode_ns("llama-110m") > 10 * decode_ns("stories-260k"));
}

TEST_CASE("two host devices at work share the bandwidth, and one alone has all of it",
          "[planner]") {
    importer::Graph graph = llama("llama-110m", DType::kF32);
    Workload workload{.batch = 1, .prompt_tokens = 256, .context = 512};
    auto decode_ns = [&](const char* devices, int tp, int pp) {
        PlanOptions options;
        options.tensor_parallel = tp;
        options.pipeline_stages = pp;
        Machine machine = build_machine(parse_devices(devices), measured_host());
        return make_plan(graph, machine, workload, options).prediction.decode_ns_per_token;
    };
    int64_t one = decode_ns("host[0]", 1, 1), stages = decode_ns("host[0-1]", 1, 2);
    int64_t shards = decode_ns("host[0-1]", 2, 1);
    // One transfer more; two shards are not twice as fast, whatever launches save.
    CHECK(stages - one > 10'000);
    CHECK(stages - one < 30'000);
    CHECK(shards > one * 8 / 10);
}

TEST_CASE("GPUs read a prompt no faster with narrower weights than with f16", "[planner]") {
    const importer::Graph graph = llama("llama-3-8b", DType::kBF16);
    for (const char* device :
         {"sim:h100[0]", "sim:a100-80[0]", "sim:rtx4090[0]", "sim:mi300x[0]"}) {
        const auto prefill = [&](std::optional<DType> dtype) {
            return static_cast<double>(
                make_plan(graph, build_machine(parse_devices(device), {}),
                          {.prompt_tokens = 4000, .prefill_chunk = 4000, .dtype = dtype}, {})
                    .prediction.prefill_ns);
        };
        INFO(device);
        const double bf16 = prefill({});
        for (const DType dtype : {DType::kInt8, DType::kInt4, DType::kF8E4M3})
            CHECK(prefill(dtype) == Approx(bf16).epsilon(0.1));
    }
}

TEST_CASE("decode of packed weights is no faster than the f32 units unpack them", "[planner]") {
    const importer::Graph graph = llama("llama-2-7b", DType::kBF16);
    const auto decode = [&](const char* device) {
        const Plan plan =
            make_plan(graph, build_machine(parse_devices(device), {}), {.dtype = DType::kInt4}, {});
        return static_cast<double>(plan.prediction.decode_ns_per_token);
    };
    // 6.6e9 elements, 11.5 operations each, at 19.5 TFLOP/s.
    CHECK(decode("sim:a100-80[0]") >= 3.8e6);
    // A 4090 has four times the f32 units and half the bandwidth: memory bounds it.
    CHECK(decode("sim:rtx4090[0]") <= 6e6);
}

TEST_CASE("cards of which others measured more or less bandwidth are priced so", "[planner]") {
    const importer::Graph graph = llama("llama-2-7b", DType::kF16);
    // Bytes of weights over a decode pass of a short context, to the data sheet's bandwidth.
    const auto reached = [&](const char* device) {
        const Machine machine = build_machine(parse_devices(device), {});
        const Plan plan = make_plan(graph, machine, {.prompt_tokens = 8, .context = 16}, {});
        return 13.2e18 / static_cast<double>(plan.prediction.decode_ns_per_token) /
               static_cast<double>(machine.devices[0].memory_bandwidth);
    };
    CHECK(reached("sim:rtx4090[0]") == Approx(0.9).margin(0.06));
    CHECK(reached("sim:a100-80[0]") == Approx(0.67).margin(0.06));
    CHECK(reached("sim:mi250x[0]") == Approx(0.61).margin(0.06));
    CHECK(reached("sim:h200[0]") == Approx(0.67).margin(0.06));
}

}  // namespace cleave::test
