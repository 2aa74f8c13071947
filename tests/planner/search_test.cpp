// SPDX-License-Identifier: Apache-2.0
// The search: against brute force, against the plans other tools would make, on odd machines, and where nothing fits.
#include "tests/support/test.h"

#include <numeric>
#include <random>

#include "models/llama_graph.h"
#include "planner/evaluate.h"
#include "planner/options.h"
#include "planner/planner.h"
#include "planner/propose.h"
#include "planner/verify.h"

using namespace cleave;
using namespace cleave::planner;
using Catch::Matchers::Contains;

namespace {

HostFacts host_facts() {
    return {4, int64_t{8} << 30, 40'000'000'000, 200'000'000'000, "x86-64-v3"};
}

Graph graph_of(const std::string& name, DType dtype) {
    return models::build_llama_graph(*models::find_shape(name), dtype);
}

Plan plan_for(const Graph& graph, const std::string& devices, Workload workload = {},
              PlanOptions options = {}) {
    return make_plan(graph, build_machine(parse_devices(devices), host_facts()), workload, options);
}

// A Llama of a few small layers, with any head counts.
models::Shape random_shape(std::mt19937& random) {
    auto pick = [&](int low, int high) {
        return std::uniform_int_distribution<int>(low, high)(random);
    };
    models::Shape s;
    s.name = "random";
    s.config.num_layers = pick(1, 3);
    s.config.num_kv_heads = pick(1, 3);
    s.config.num_heads = s.config.num_kv_heads * pick(1, 3);
    s.config.head_dim = 8 * pick(1, 16);
    s.config.hidden_size = s.config.num_heads * s.config.head_dim;
    s.config.intermediate_size = 16 * pick(1, 200);
    s.config.vocab_size = 16 * pick(1, 400);
    s.config.max_positions = 4096;
    s.config.rope_theta = 10000;
    return s;
}

// One to four devices of up to two kinds, with links of any speed.
Machine random_machine(std::mt19937& random, int most) {
    static const char* const kModels[] = {"sim:h100",   "sim:a100-40", "sim:l40s",
                                          "sim:mi300x", "sim:rtx4090", "sim:host"};
    auto pick = [&](int low, int high) {
        return std::uniform_int_distribution<int>(low, high)(random);
    };
    int count = pick(1, most), first = pick(1, count);
    std::string list = fmt::format("{}[0-{}]", kModels[pick(0, 2)], first - 1);
    if (first < count) list += fmt::format(",{}[0-{}]", kModels[pick(3, 5)], count - first - 1);
    return build_machine(parse_devices(list), host_facts());
}

// Every placement: cuts between units, contiguous device ranges, devices left out at any point.
template <class Visit>
void each_placement(const Analysis& a, const Machine& machine, Visit&& visit) {
    auto units = static_cast<int>(a.units.size()),
         devices = static_cast<int>(machine.devices.size());
    Placement placement;
    auto extend = [&](auto&& self, int unit, int device) -> void {
        if (unit == units) return visit(placement);
        if (device == devices) return;
        self(self, unit, device + 1);
        for (int end = unit + 1; end <= units; ++end)
            for (int count = 1; device + count <= devices; ++count) {
                StageChoice stage;
                for (int i = 0; i < count; ++i) stage.devices.push_back(DeviceId(device + i));
                stage.shares.weights.assign(count, 1);
                stage.begin = a.units[unit].begin;
                stage.end = a.units[end - 1].end;
                placement.stages.push_back(stage);
                self(self, end, device + count);
                placement.stages.pop_back();
            }
    };
    extend(extend, 0, 0);
}

}  // namespace

TEST_CASE("on small graphs the programme finds what brute force over all cuts and ranges finds",
          "[planner]") {
    std::mt19937 random(1);
    int cases = 0;
    while (cases < 40) {
        models::Shape shape = random_shape(random);
        shape.config.num_layers = 1 + cases % 2;
        Graph graph = models::build_llama_graph(shape, DType::kF16);
        // Equal devices: the shares are then settled, and brute force need not try others.
        Machine machine = build_machine(
            parse_devices(fmt::format("sim:{}[0-{}]", cases % 2 ? "h100" : "a40", 1 + cases % 3)),
            host_facts());
        Workload workload;
        workload.context = 1024;
        workload.prompt_tokens = 256;
        PlanOptions options;
        options.objective = cases % 3 == 2 ? Objective::kThroughput : Objective::kLatency;
        Plan plan = make_plan(graph, machine, workload, options);
        Analysis analysis = analyse(graph);
        Workload settled = workload;
        check_options(analysis, machine, settled, options);
        int64_t best = INT64_MAX;
        each_placement(analysis, machine, [&](const Placement& placement) {
            for (bool whole_groups : {true, false}) {
                Placement p = placement;
                for (StageChoice& s : p.stages) s.shares.whole_groups = whole_groups;
                Plan candidate;
                candidate.graph = graph;
                candidate.machine = machine;
                candidate.workload = settled;
                candidate.options = options;
                build_placement(analysis, p, candidate);
                best = std::min(best, candidate.prediction.objective_ns);
            }
        });
        INFO("case " << cases << ": " << shape.config.num_layers << " layers on " << machine.name);
        // Among plans within a quarter of a per cent the balanced one is taken.
        REQUIRE(static_cast<double>(plan.prediction.objective_ns) <=
                static_cast<double>(best) * 1.0026);
        REQUIRE(plan.prediction.lower_bound_ns <= best);
        ++cases;
    }
}

TEST_CASE("plans of random models on random machines verify and never fall behind equal layers",
          "[planner]") {
    std::mt19937 random(7);
    for (int i = 0; i < 150; ++i) {
        Graph graph = models::build_llama_graph(random_shape(random), DType::kF16);
        Machine machine = random_machine(random, 6);
        Workload workload;
        workload.batch = 1 + i % 3;
        workload.context = 1024;
        workload.prompt_tokens = 100;
        PlanOptions options;
        options.objective = static_cast<Objective>(i % 3);
        Plan plan = make_plan(graph, machine, workload, options);  // verifies
        if (options.objective == Objective::kMemory) continue;
        REQUIRE(plan.prediction.lower_bound_ns <= plan.prediction.objective_ns);
        Analysis analysis = analyse(graph);
        auto devices = static_cast<int>(machine.devices.size());
        for (int tp = 1; tp <= devices; ++tp) {
            if (devices % tp != 0 || devices / tp > static_cast<int>(analysis.units.size()))
                continue;
            int pp = devices / tp;
            Placement equal;
            for (int s = 0; s < pp; ++s) {
                StageChoice stage;
                for (int k = 0; k < tp; ++k) stage.devices.push_back(DeviceId(s * tp + k));
                stage.shares.weights.assign(tp, 1);
                auto units = static_cast<int>(analysis.units.size());
                stage.begin = analysis.units[s * units / pp].begin;
                stage.end = analysis.units[(s + 1) * units / pp - 1].end;
                equal.stages.push_back(stage);
            }
            Plan candidate;
            candidate.graph = graph;
            candidate.machine = machine;
            candidate.workload = plan.workload;
            candidate.options = options;
            build_placement(analysis, equal, candidate);
            INFO("case " << i << " tp " << tp << " x pp " << pp << " on " << machine.name);
            REQUIRE(plan.prediction.objective_ns <= candidate.prediction.objective_ns);
        }
    }
}

TEST_CASE("the same input gives the same steps, and every forced shape uses its devices",
          "[planner]") {
    Graph graph = graph_of("stories-260k", DType::kF32);
    Workload workload;
    workload.context = 256;
    workload.prompt_tokens = 32;
    for (auto [devices, tp, pp] : {std::tuple{"host[0-2]", 3, 1},
                                   {"host[0-3]", 2, 2},
                                   {"host[0-7]", 8, 1},
                                   {"host[0-7]", 1, 8},
                                   {"host[0-4]", 0, 5},
                                   {"host[0-6]", 0, 3}}) {
        PlanOptions options;
        options.tensor_parallel = tp;
        options.pipeline_stages = pp;
        Plan a = plan_for(graph, devices, workload, options),
             b = plan_for(graph, devices, workload, options);
        REQUIRE(static_cast<int>(a.stages.size()) == pp);
        size_t used = 0;
        for (const Stage& s : a.stages) used += s.devices.size();
        REQUIRE(used == a.machine.devices.size());
        REQUIRE(a.decode.steps.size() == b.decode.steps.size());
        for (size_t i = 0; i < a.decode.steps.size(); ++i)
            REQUIRE(a.decode.steps[i].start_ns == b.decode.steps[i].start_ns);
    }
}

TEST_CASE("devices beyond use stay unused and the plan says so", "[planner]") {
    Workload workload;
    workload.context = 128;
    workload.prompt_tokens = 16;
    Plan plan = plan_for(graph_of("stories-260k", DType::kF32), "sim:h100[0-7]", workload);
    size_t used = 0;
    for (const Stage& s : plan.stages) used += s.devices.size();
    REQUIRE(used < 8);
    REQUIRE_THAT(plan.why.binding, Contains("unused: ") && Contains("sim:h100[7]"));
}

TEST_CASE("llama-2-70b in f16 fits where the arithmetic says so", "[planner]") {
    Graph graph = graph_of("llama-2-70b", DType::kF16);
    REQUIRE_NOTHROW(plan_for(graph, "sim:a40[0-3]"));
    REQUIRE_NOTHROW(plan_for(graph, "sim:rtx4090[0-7]"));
    REQUIRE_NOTHROW(plan_for(graph, "sim:h100[0-3]"));
    try {
        plan_for(graph, "sim:rtx4090[0-3]");
        FAIL("138 GB of weights do not fit in 4 x 24 GB");
    } catch (const DoesNotFit& error) {
        REQUIRE(error.devices().size() == 4);
        for (const Deficit& d : error.devices()) {
            REQUIRE(d.deficit_bytes == std::max<int64_t>(0, d.needed_bytes - d.capacity_bytes));
            REQUIRE(d.deficit_bytes > 0);
        }
        REQUIRE(!error.fixes().empty());
    }
}

TEST_CASE("the memory objective uses the fewest devices that hold the model", "[planner]") {
    PlanOptions options;
    options.objective = Objective::kMemory;
    // 141 GB of weights: two devices of 85 GB, whatever the others could speed up.
    Plan plan = plan_for(graph_of("llama-3-70b", DType::kBF16), "sim:h100[0-7]", {}, options);
    size_t used = 0;
    for (const Stage& s : plan.stages) used += s.devices.size();
    REQUIRE(used == 2);
    REQUIRE_THAT(plan.why.binding, Contains("unused: "));
}

TEST_CASE("the largest batch that a refusal names fits, and one more does not", "[planner]") {
    Graph graph = graph_of("llama-2-70b", DType::kF16);
    Workload workload;
    workload.batch = 64;
    std::string fix;
    try {
        plan_for(graph, "sim:a40[0-3]", workload);
        FAIL("86 GB of KV do not fit beside the weights");
    } catch (const DoesNotFit& error) {
        for (const std::string& f : error.fixes())
            if (f.starts_with("--batch ")) fix = f;
    }
    REQUIRE(!fix.empty());
    workload.batch = std::stoll(fix.substr(8));
    REQUIRE_NOTHROW(plan_for(graph, "sim:a40[0-3]", workload));
    ++workload.batch;
    REQUIRE_THROWS_AS(plan_for(graph, "sim:a40[0-3]", workload), DoesNotFit);
}

TEST_CASE("odd counts and mixed machines plan", "[planner]") {
    for (auto [model, devices] : {std::pair{"llama-3-8b", "sim:l40s[0-2]"},
                                  {"llama-2-7b", "sim:rtx4090[0-4]"},
                                  {"llama-3-70b", "sim:h100[0-6]"},
                                  {"llama-3-70b", "sim:h100[0-2],sim:a100-80[0-1]"},
                                  {"llama-3-8b", "sim:mi300x[0],sim:h100[0],host[0]"},
                                  {"llama-3-70b", "sim:h100[5,2,7]"}}) {
        INFO(model << " on " << devices);
        Plan plan = plan_for(graph_of(model, DType::kBF16), devices);
        REQUIRE(!plan.decode.steps.empty());
    }
}

TEST_CASE("options that cannot be met are refused with the fix", "[planner]") {
    Graph graph = graph_of("stories-260k", DType::kF32);
    Workload small;
    small.context = 64;
    small.prompt_tokens = 16;
    auto refused = [&](const std::string& devices, auto&& change) {
        Workload workload = small;
        PlanOptions options;
        change(workload, options);
        return test::user_error([&] { plan_for(graph, devices, workload, options); });
    };
    REQUIRE_THAT(
        refused("host[0-2]",
                [](Workload&, PlanOptions& o) { o.tensor_parallel = 2, o.pipeline_stages = 2; }),
        Contains("--tp 2 x --pp 2 uses 4 of 3 devices; give 4"));
    REQUIRE_THAT(refused("host[0-2]", [](Workload&, PlanOptions& o) { o.tensor_parallel = 2; }),
                 Contains("--tp 2 does not divide 3 devices"));
    REQUIRE_THAT(refused("host", [](Workload&, PlanOptions& o) { o.pipeline_stages = 2; }),
                 Contains("--pp 2 needs 2 devices and 1 device is given"));
    REQUIRE_THAT(refused("host", [](Workload&, PlanOptions& o) { o.tensor_parallel = -1; }),
                 Contains("--tp -1"));
    REQUIRE_THAT(refused("host[0-19]", [](Workload&, PlanOptions& o) { o.pipeline_stages = 20; }),
                 Contains("at most 12 stages"));
    REQUIRE_THAT(refused("host", [](Workload& w, PlanOptions&) { w.prompt_tokens = 65; }),
                 Contains("the prompt has 65 tokens and the context only 64"));
    REQUIRE_THAT(refused("host", [](Workload& w, PlanOptions&) { w.batch = 0; }),
                 Contains("--batch 0"));
    REQUIRE_THAT(refused("host", [](Workload& w, PlanOptions&) { w.prefill_chunk = 0; }),
                 Contains("--prefill-chunk 0"));
    REQUIRE_THAT(refused("host", [](Workload& w, PlanOptions&) { w.dtype = DType::kInt4; }),
                 Contains("--dtype int4") && Contains("f32, f16 and bf16"));
    REQUIRE_THAT(refused("host", [](Workload& w, PlanOptions&) { w.kv_dtype = DType::kInt8; }),
                 Contains("--kv-dtype int8"));
}
