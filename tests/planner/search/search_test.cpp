// SPDX-License-Identifier: Apache-2.0
// The search: against the plans other tools would make, on odd machines, and where nothing fits.
// (Against brute force: brute_force_test.cpp.)
#include "tests/support/test.h"

#include <array>
#include <cstdlib>
#include <new>
#include <set>

#include "models/llama_graph.h"
#include "planner/build/build_plan.h"
#include "planner/file/plan_file.h"
#include "planner/machine/build_machine.h"
#include "planner/plan/plan_queries.h"
#include "planner/plan/used_devices.h"
#include "planner/planner.h"
#include "planner/search/baselines.h"
#include "planner/search/simplicity.h"
#include "tests/planner/support/random_cases.h"

namespace {
thread_local int64_t allocations = 0;
}

// Counted, as work that depends on nothing but the request: every step, value and candidate is
// allocated.
[[gnu::noinline]] void* operator new(size_t bytes) {
    ++allocations;
    if (void* p = std::malloc(bytes > 0 ? bytes : 1)) return p;
    throw std::bad_alloc();
}
// std::stable_sort takes its memory so, and gives it back as all other.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
    ++allocations;
    return std::malloc(bytes > 0 ? bytes : 1);
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }

using namespace cleave;
using namespace cleave::planner;
using Catch::Matchers::Contains;

namespace {

Graph graph_of(const std::string& name, DType dtype) {
    return models::build_llama_graph(*models::find_shape(name), dtype);
}

// The placement as a plan of the same request.
Plan built(const Analysis& analysis, const Placement& placement, const Plan& like) {
    return {like, PlanBuilder(analysis, like).build(placement)};
}

Plan plan_for(const Graph& graph, const std::string& devices, Workload workload = {},
              const PlanOptions& options = {}) {
    return make_plan(graph, test::machine_of(devices), workload, options);
}

}  // namespace

TEST_CASE("plans of random models on random machines are never worse than any of the simple rules",
          "[planner]") {
    test::Drawer drawer(7);
    for (int i = 0; i < test::cases(150); ++i) {
        Graph graph =
            models::build_llama_graph(drawer.model({}), i % 2 ? DType::kBF16 : DType::kF16);
        Machine machine = drawer.catalogue_machine(6);
        Workload workload;
        workload.batch = 1 + i % 3;
        workload.context = 1024;
        workload.prompt_tokens = 100;
        PlanOptions options;
        options.objective = static_cast<Objective>(i % 2);
        Plan plan = make_plan(graph, machine, workload, options);  // verifies
        REQUIRE(plan.prediction.lower_bound_ns <= plan.prediction.objective_ns);
        Analysis analysis = analyse(graph, plan.workload);
        for (Baseline& b : baselines(analysis, machine, plan.workload)) {
            Plan simple = built(analysis, b.placement, plan);
            if (!fits_memory(simple)) continue;
            INFO("case " << i << " " << b.rule << " " << b.shape << " on " << machine.name);
            REQUIRE(weighed_ns(plan, options.objective) <= weighed_ns(simple, options.objective));
        }
    }
}

TEST_CASE("real shapes are planned no worse than by any of the simple rules", "[planner]") {
    for (auto [model, devices, objective] :
         {std::tuple{"llama-3-8b", "sim:h100[0-7]", Objective::kLatency},
          {"llama-3-8b", "sim:a40[0-6]", Objective::kThroughput},
          {"llama-3-70b", "sim:h100[0-2],sim:a100-80[0-1]", Objective::kLatency},
          {"llama-3-70b", "sim:h100[0-2],sim:a100-80[0-1]", Objective::kThroughput},
          {"tinyllama-1.1b", "host[0-2]", Objective::kThroughput}}) {
        INFO(model << " on " << devices);
        Graph graph = graph_of(model, DType::kBF16);
        PlanOptions options;
        options.objective = objective;
        Plan plan = plan_for(graph, devices, {}, options);
        Analysis analysis = analyse(graph, plan.workload);
        std::set<std::string> rules;
        for (Baseline& b : baselines(analysis, plan.machine, plan.workload)) {
            rules.insert(b.rule);
            Plan simple = built(analysis, b.placement, plan);
            INFO(b.rule << " " << b.shape);
            if (fits_memory(simple))
                CHECK(weighed_ns(plan, objective) <= weighed_ns(simple, objective));
        }
        CHECK(rules.count("equal layers") + rules.count("megatron") + rules.count("uniform grid") ==
              3);
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
        REQUIRE(serialize_plan(a) == serialize_plan(b));  // byte for byte
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
    REQUIRE_THAT(plan.why.binding, Contains("unused: sim:h100[") && Contains("7]"));
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
    // 141 GB of weights: two devices of 85 GB, even where others would speed it up.
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
            if (f.starts_with("$batch ")) fix = f;
    }
    REQUIRE(!fix.empty());
    workload.batch = std::stoll(fix.substr(7));
    REQUIRE_NOTHROW(plan_for(graph, "sim:a40[0-3]", workload));
    ++workload.batch;
    REQUIRE_THROWS_AS(plan_for(graph, "sim:a40[0-3]", workload), DoesNotFit);
}

TEST_CASE("where a plan has just room it is found, and a refusal always says what is lacking",
          "[planner]") {
    test::Drawer d(12);
    int found = 0;
    constexpr int kTried = test::cases(150);
    for (int i = 0; i < kTried; ++i) {
        INFO("plan " << i);
        const models::Shape shape = d.model({.layers = 4, .head_dims = 8, .vocab = 300});
        const auto graph = models::build_llama_graph(shape, shape.dtype);
        const char* kind = d.one_of(std::array{"host", "sim:h100", "sim:a40"});
        Machine machine = test::machine_of(fmt::format("{}[0-{}]", kind, d.pick(0, 5)));
        Workload workload{.batch = d.pick(1, 6), .prompt_tokens = d.pick(1, 64)};
        workload.context = workload.prompt_tokens + d.pick(0, 100);
        const Plan loose = make_plan(graph, machine, workload, {});
        for (size_t at = 0; at < machine.devices.size(); ++at)
            machine.devices[at].memory_bytes = loose.memory[at].needed();
        try {
            make_plan(graph, machine, workload, {});
            ++found;
        } catch (const DoesNotFit& error) {
            CHECK(std::ranges::any_of(error.devices(),
                                      [](const Deficit& one) { return one.deficit_bytes > 0; }));
        }
    }
    CHECK(found > kTried * 9 / 10);
}

TEST_CASE("each objective is best at what it is named for", "[planner]") {
    test::Drawer drawer(21);
    for (int i = 0; i < test::cases(60); ++i) {
        Graph graph = models::build_llama_graph(
            drawer.model({.layers = 5, .intermediate = 20'000, .vocab = 50'000}), DType::kF16);
        Machine machine = drawer.catalogue_machine(4);
        Workload workload{.batch = drawer.pick(1, 8), .prompt_tokens = drawer.pick(1, 900)};
        workload.context = workload.prompt_tokens + drawer.pick(1, 600);
        std::vector<Plan> plans;
        for (Objective o : {Objective::kLatency, Objective::kThroughput, Objective::kMemory})
            plans.push_back(make_plan(graph, machine, workload, {.objective = o}));
        // The same plan scored for each: what each objective means, written out.
        int64_t generated = workload.context - workload.prompt_tokens;
        auto latency = [&](const Plan& p) {
            return p.prediction.decode_ns_per_token + p.prediction.prefill_ns / generated;
        };
        auto devices = [](const Plan& p) { return used_devices(p).size(); };
        INFO("case " << i << " on " << machine.name);
        CHECK(plans[0].prediction.objective_ns == latency(plans[0]));
        for (const Plan& other : plans) {
            // With one group in flight a round is little else than a pass, and one search may then
            // find what the other misses.
            const double slack = &other == &plans[1] ? 1.002 : 1;
            const auto weighed = [&](const Plan& p) {
                return static_cast<double>(latency(p)) * hardship(p.stages) *
                       cost_of_devices(devices(p), Objective::kLatency);
            };
            CHECK(weighed(plans[0]) <= slack * weighed(other));
            CHECK(devices(plans[2]) <= devices(other));
        }
        // With one group in flight every plan serves a token of all in a pass.
        for (const Plan& other : plans)
            CHECK(weighed_ns(plans[1], Objective::kThroughput) <=
                  weighed_ns(latency(other), hardship(other.stages)) + 1);
    }
}

TEST_CASE("what is generated weighs prefill against decode", "[planner]") {
    // Long prompts and two tokens of answer: prefill decides. One token of prompt and a long
    // answer: decode.
    Graph graph = graph_of("llama-3-8b", DType::kBF16);
    Plan reading = plan_for(graph, "sim:a40[0-3]", {.prompt_tokens = 4094, .context = 4096});
    Plan writing = plan_for(graph, "sim:a40[0-3]", {.prompt_tokens = 1, .context = 4096});
    CHECK(reading.prediction.objective_ns ==
          reading.prediction.decode_ns_per_token + reading.prediction.prefill_ns / 2);
    CHECK(writing.prediction.objective_ns ==
          writing.prediction.decode_ns_per_token + writing.prediction.prefill_ns / 4095);
    CHECK(reading.prediction.objective_ns > 2 * writing.prediction.objective_ns);
}

TEST_CASE("the way heads are cut is named, with what the other way would cost", "[planner]") {
    // 8 KV heads over 3 devices: whole groups are unequal, cut ones are held twice.
    Plan plan = plan_for(graph_of("llama-3-8b", DType::kBF16), "sim:h100[0-2]",
                         {.prompt_tokens = 64, .context = 1024}, {.tensor_parallel = 3});
    CHECK_THAT(head_split(plan), Contains("query heads a device"));
    bool whole = head_split(plan).find("whole KV groups") != std::string::npos;
    bool compared = false;
    for (const RunnerUp& r : plan.why.runners_up)
        if (r.shape == (whole ? "the same with heads cut inside KV groups"
                              : "the same with whole KV groups on each device")) {
            compared = true;
            CHECK(r.objective_ns >= plan.prediction.objective_ns);
        }
    CHECK(compared);
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
        Contains("$tensor_parallel 2 x $pipeline_stages 2 uses 4 of 3 devices; give 4"));
    REQUIRE_THAT(refused("host[0-2]", [](Workload&, PlanOptions& o) { o.tensor_parallel = 2; }),
                 Contains("$tensor_parallel 2 does not divide 3 devices"));
    REQUIRE_THAT(refused("host", [](Workload&, PlanOptions& o) { o.pipeline_stages = 2; }),
                 Contains("$pipeline_stages 2 needs 2 devices and 1 device is given"));
    REQUIRE_THAT(refused("host", [](Workload&, PlanOptions& o) { o.tensor_parallel = -1; }),
                 Contains("$tensor_parallel -1"));
    REQUIRE_THAT(refused("host[0-19]", [](Workload&, PlanOptions& o) { o.pipeline_stages = 20; }),
                 Contains("at most 12 stages"));
    REQUIRE_THAT(refused("host", [](Workload& w, PlanOptions&) { w.prompt_tokens = 65; }),
                 Contains("the prompt has 65 tokens and the context only 64"));
    REQUIRE_THAT(refused("host", [](Workload& w, PlanOptions&) { w.batch = 0; }),
                 Contains("$batch 0"));
    REQUIRE_THAT(refused("host", [](Workload& w, PlanOptions&) { w.prefill_chunk = 0; }),
                 Contains("$prefill_chunk 0: a chunk has at least one token"));
    REQUIRE_THAT(refused("host", [](Workload& w, PlanOptions&) { w.context = 0; }),
                 Contains("$context 0: the context has at least one token"));
    REQUIRE_THAT(refused("host", [](Workload& w, PlanOptions&) { w.prompt_tokens = 0; }),
                 Contains("$prompt_tokens 0: a prompt has at least one token"));
    REQUIRE_THAT(
        refused("host", [](Workload& w, PlanOptions&) { w.activation_dtype = DType::kInt8; }),
        Contains("activations of type int8 are not supported"));
    REQUIRE_THAT(refused("simt:sm_90a[0],host[0]",
                         [](Workload& w, PlanOptions&) { w.activation_dtype = DType::kBF16; }),
                 Contains("$activation_dtype bf16: host[0] is a host"));
    Graph empty;
    empty.name = "empty";
    REQUIRE_THAT(test::user_error([&] { plan_for(empty, "host", small, {}); }),
                 Contains("empty: the graph has no operators"));
    REQUIRE_THAT(refused("host", [](Workload& w, PlanOptions&) { w.dtype = DType::kInt16; }),
                 Contains("$dtype int16") && Contains("f32, f16, bf16, f8e4m3, int8, int4"));
    REQUIRE_THAT(refused("host", [](Workload& w, PlanOptions&) { w.kv_dtype = DType::kInt4; }),
                 Contains("$kv_dtype int4") && Contains("f32, f16, bf16, f8e4m3, int8"));
}

TEST_CASE("a model of twice the layers is twice the work at most", "[planner]") {
    for (Objective objective : {Objective::kLatency, Objective::kThroughput}) {
        int64_t before = 0;
        for (int64_t layers : {32, 64, 128, 256}) {
            models::Shape shape = *models::find_shape("tinyllama-1.1b");
            shape.config.num_layers = layers;
            Graph graph = models::build_llama_graph(shape, DType::kBF16);
            Machine machine = test::machine_of("sim:h100[0-3]");
            PlanOptions options;
            options.objective = objective;
            int64_t start = allocations;
            make_plan(graph, machine, {}, options);
            int64_t work = allocations - start;
            INFO(layers << " layers: " << work << " allocations, half of them " << before);
            if (before > 0) CHECK(static_cast<double>(work) < 2.2 * static_cast<double>(before));
            before = work;
        }
    }
}
