// SPDX-License-Identifier: Apache-2.0
// Questions to a plan: what each answers agrees with plans made by themselves, and what cannot be
// asked is refused with what can.

#include <atomic>
#include <set>
#include <utility>

#include "models/llama_graph.h"
#include "models/shapes.h"
#include "planner/ask/at_once.h"
#include "planner/ask/limits.h"
#include "planner/ask/sweep.h"
#include "planner/ask/what_if.h"
#include "planner/ask/why.h"
#include "planner/ask/why_not.h"
#include "planner/plan/plan_queries.h"
#include "planner/planner.h"
#include "tests/planner/support/machines.h"
#include "tests/planner/support/random_cases.h"
#include "tests/planner/support/tensor_graph.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using namespace planner;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

Graph graph_of(const char* shape) {
    const auto found = models::find_shape(shape);
    return models::build_llama_graph(*found, found->dtype);
}

Case case_on(const std::string& devices, Workload workload = {}, PlanOptions options = {},
             const char* shape = "llama-3-8b") {
    return {graph_of(shape), machine_of(devices), workload, std::move(options)};
}

Plan plan_of(const Case& asked) {
    return make_plan(asked.graph, asked.machine, asked.workload, asked.options);
}

}  // namespace

TEST_CASE("the parts of a pass's time add up to it", "[planner]") {
    Drawer drawer(11);
    for (int i = 0; i < 60; ++i) {
        INFO("plan " << i);
        const models::Shape shape = drawer.model({.layers = 4, .bf16 = true});
        const Machine machine = drawer.any_machine(5);
        const auto graph = models::build_llama_graph(shape, shape.dtype);
        const Plan plan =
            make_plan(graph, machine, {.batch = drawer.pick(1, 8), .context = 600}, {});
        CHECK(time_parts(plan, false).whole() == plan.prediction.decode_ns_per_token);
        int64_t by_work = 0;
        for (const WorkTime& w : time_by_work(plan, false)) by_work += w.ns;
        CHECK(by_work == plan.prediction.decode_ns_per_token);
        if (machine.domains.empty()) CHECK(time_parts(plan, false).sharing_ns <= 1);
    }
}

TEST_CASE("a plan is the same as itself, and another shape moves layers and heads", "[planner]") {
    const Plan one = plan_of(case_on("sim:h100[0-3]", {}, {.tensor_parallel = 4}));
    const PlanDiff none = diff(one, one);
    CHECK(none.same());
    CHECK_THAT(none.answer, Contains("are the same plan"));
    const Plan two = plan_of(case_on("sim:h100[0-3]", {.batch = 4}, {.tensor_parallel = 2}));
    const PlanDiff d = diff(one, two, "a.plan", "b.plan");
    CHECK_FALSE(d.same());
    REQUIRE(d.moved.size() >= 2);
    CHECK(d.moved[1].what == "layers 0-15");
    CHECK(d.moved[1].a == "sim:h100[0-3]");
    CHECK(d.moved[1].b == "sim:h100[0-1]");
    CHECK(d.devices.size() == 4);
    CHECK(d.devices[1].a.heads == "8-15");
    CHECK(d.devices[1].b.heads == "16-31");
    const auto batch = std::ranges::find(d.asked, "batch", &Difference::what);
    REQUIRE(batch != d.asked.end());
    CHECK(batch->b == "4");
    CHECK(d.b.decode.whole() - d.a.decode.whole() ==
          two.prediction.decode_ns_per_token - one.prediction.decode_ns_per_token);
    const Plan other = plan_of(case_on("sim:h100[0]", {}, {}, "llama-3.2-1b"));
    CHECK_THAT(diff(one, other, "a", "b").answer, Contains("of different models"));
}

TEST_CASE("why says where a part is, and what its neighbours would cost, planned", "[planner]") {
    const Case asked = case_on("sim:h100[0-3]", {}, {.tensor_parallel = 2});
    const Plan plan = plan_of(asked);
    const WhyAnswer a = why(plan, "layers.20.attention");
    CHECK(a.stages == std::vector{1});
    REQUIRE(a.holdings.size() == 2);
    CHECK(plan.machine.device(a.holdings[0].device).name == "sim:h100[2]");
    CHECK(a.holdings[0].share == "heads 0-15");
    CHECK(a.holdings[0].weight_bytes > 0);
    CHECK(a.holdings[0].kv_bytes > 0);
    REQUIRE(!a.places.empty());
    CHECK(a.because == "speed");
    Case forced = asked;
    forced.options.pipeline_stages = 2;
    const WhyAnswer whole = why(plan, "layers.20");
    REQUIRE(whole.places.size() == 1);
    // Each stage keeps its far end, so that alike devices do not just change their parts.
    forced.options.pins = {
        {"layers.20", "sim:h100[0]"}, {"layers.0", "sim:h100[0]"}, {"layers.31", "sim:h100[2]"}};
    CHECK(whole.places[0].objective_ns == plan_of(forced).prediction.objective_ns);
    CHECK(whole.places[0].where == "sim:h100[0-1]");
    CHECK_THAT(whole.answer,
               Contains("layers.20 is on sim:h100[2-3]") &&
                   Contains("Next best place: on sim:h100[0], it is on sim:h100[0-1]"));
    const WhyAnswer half = why(plan, "layers.20.mlp");
    CHECK(half.holdings[0].kv_bytes == 0);
    CHECK(half.holdings[0].weight_bytes + a.holdings[0].weight_bytes ==
          whole.holdings[0].weight_bytes);
}

TEST_CASE("why of a pin, a device, a weight, a buffer, a token and the links", "[planner]") {
    const Plan plan =
        plan_of(case_on("sim:h100[0-3]", {.batch = 8},
                        {.tensor_parallel = 2, .pins = {{"layers.0-7", "sim:h100[0]"}}}));
    const WhyAnswer pinned = why(plan, "layers.3");
    CHECK(pinned.because == "pin");
    CHECK_THAT(pinned.answer, Contains("You pinned it: layers.0-7=sim:h100[0]"));
    const WhyAnswer device = why(plan, "sim:h100[3]");
    CHECK(device.device.heads == "16-31");
    CHECK(device.device.stages == std::vector{1});
    CHECK(device.device.sent > 0);
    REQUIRE(device.places.size() == 1);
    CHECK(device.places[0].objective_ns > 0);
    const WhyAnswer weight = why(plan, "model.layers.3.q_proj.weight");
    REQUIRE(weight.holdings.size() == 2);
    CHECK(weight.holdings[1].share == "rows 2048-4095");
    CHECK(why(plan, "batch.positions").what.kind == WhatKind::kBuffer);
    const WhyAnswer token = why(plan, "token");
    CHECK(token.decode.whole() == plan.prediction.decode_ns_per_token);
    CHECK_THAT(token.answer, Contains("A decode pass takes"));
    const WhyAnswer links = why(plan, "links");
    REQUIRE(links.links.size() > 1);
    for (size_t i = 1; i < links.links.size(); ++i)
        CHECK(links.links[i - 1].ns >= links.links[i].ns);
    CHECK_THAT(user_error([&] { why(plan, "layer12"); }),
               Contains("'layer12' is nothing in this plan") && Contains("layers.A-B"));
    CHECK_THAT(user_error([&] { why(plan, "layers.32"); }),
               Contains("has no layer 32; it has layers 0 to 31"));
    CHECK_THAT(user_error([&] { why(plan, "layers.5-3"); }), Contains("write layers.3-5"));
    const Graph tensors = tensor_layer().graph;
    const Plan flat = make_plan(tensors, machine_of("host[0]"), {}, {});
    CHECK_THAT(user_error([&] { why(flat, "layers.0"); }),
               Contains("has no decoder layers that could be told apart"));
    CHECK(why(plan_of(case_on("sim:h100[0]")), "layers.0").because == "only place");
}

TEST_CASE("why not is the forced plan, the memory it lacks, or the rule", "[planner]") {
    const Case asked = case_on("sim:h100[0-3]");
    const Plan plan = plan_of(asked);
    CHECK(why_not(plan, asked, "tp=4").verdict == Verdict::kSame);
    const WhyNotAnswer staged = why_not(plan, asked, "pp=4");
    CHECK(staged.verdict == Verdict::kWorse);
    REQUIRE(staged.forced);
    Case forced = asked;
    forced.options.pipeline_stages = 4;
    CHECK(staged.forced->objective_ns == plan_of(forced).prediction.objective_ns);
    CHECK(staged.slower > 0);
    CHECK(why_not(plan, asked, "tp=2,pp=2").forced->shape == "tp 2 x pp 2");
    const WhyNotAnswer rule = why_not(plan, asked, "tp=3");
    CHECK(rule.verdict == Verdict::kForbidden);
    CHECK_THAT(rule.answer, Contains("does not divide 4 devices"));
    CHECK(why_not(plan, asked, "replicas=2").verdict == Verdict::kForbidden);
    CHECK(why_not(plan, asked, "sim:h100[2]").verdict == Verdict::kSame);
    const WhyNotAnswer pin = why_not(plan, asked, "layers.0-9=sim:h100[1]");
    CHECK(pin.verdict == Verdict::kSame);  // all four devices have each layer
    CHECK_THAT(pin.answer, Contains("changes nothing: the plan, tp 4 x pp 1, has it so already"));
    const Case mixed = case_on("sim:h100[0],sim:host[0]");
    const Plan alone = plan_of(mixed);
    const WhyNotAnswer device = why_not(alone, mixed, "sim:host[0]");
    CHECK(device.verdict == Verdict::kWorse);
    CHECK(device.forced->devices == 2);
    Case tight = case_on("sim:rtx4090[0-1]", {.context = 8192}, {.tensor_parallel = 1});
    tight.machine.devices[1].memory_bytes = int64_t{4} << 30;
    const WhyNotAnswer lacks = why_not(plan_of(tight), tight, "layers.0-31=sim:rtx4090[1]");
    CHECK(lacks.verdict == Verdict::kNoMemory);
    CHECK_THAT(lacks.answer, Contains("does not fit: it lacks"));
    CHECK_THAT(user_error([&] { why_not(plan, asked, "faster"); }),
               Contains("'faster' is nothing that can be forced") && Contains("tp=N"));
    CHECK_THAT(user_error([&] { why_not(plan, asked, "tp=x"); }),
               Contains("'x' is no whole number from 1 to 1024; write tp=N"));
}

TEST_CASE("what if is the changed request's own plan", "[planner]") {
    const Case asked = case_on("sim:h100[0-3]", {.batch = 4});
    const Plan plan = plan_of(asked);
    const WhatIfAnswer more = what_if(plan, asked, {.add = {"sim:h100[4-7]"}, .remove = {}});
    REQUIRE(more.after);
    CHECK(more.after->objective_ns ==
          plan_of(case_on("sim:h100[0-7]", {.batch = 4})).prediction.objective_ns);
    Change change{.add = {}, .remove = {"sim:h100[2-3]"}, .batch = 16, .context = 8192};
    change.dtype = DType::kInt8;
    const WhatIfAnswer several = what_if(plan, asked, change);
    REQUIRE(several.after);
    CHECK(several.after->objective_ns ==
          plan_of(case_on("sim:h100[0-1]", {.batch = 16, .context = 8192, .dtype = DType::kInt8}))
              .prediction.objective_ns);
    CHECK_THAT(several.answer, StartsWith("Without sim:h100[2-3], batch 16, context 8192, int8"));
    const WhatIfAnswer links =
        what_if(plan, asked, {.add = {}, .remove = {}, .links = {{"nvlink", 0.1}}});
    CHECK(links.diff->slower > 0);
    const WhatIfAnswer far = what_if(plan, asked, {.add = {}, .remove = {}, .context = 8193});
    CHECK_THAT(far.answer, Contains("the model's positions end at 8192"));
    const WhatIfAnswer none = what_if(plan, asked, {.add = {}, .remove = {}, .batch = 100'000});
    CHECK(none.outcome.lacks_memory);
    CHECK_THAT(none.answer, Contains("it does not fit, it lacks") && Contains("$batch"));
    Case shaped = asked;
    shaped.options.tensor_parallel = 4;
    CHECK(what_if(plan, shaped, {.add = {"sim:h100[4]"}, .remove = {}}).shape_was_freed);
}

TEST_CASE("devices and links that a machine may have more or less of", "[planner]") {
    const Machine machine = machine_of("sim:h100[0-7]");
    CHECK(with_devices(machine, "sim:h100[8]").devices.size() == 9);
    // The catalogue's ninth is in a second node; one of a measured machine is like the last.
    CHECK(with_devices(machine, "sim:h100[8]").devices[8].host != machine.devices[7].host);
    Machine measured = machine;
    measured.devices[7].memory_bandwidth += 1;
    const Machine like = with_devices(measured, "sim:h100[8]");
    CHECK(like.devices[8].memory_bandwidth == measured.devices[7].memory_bandwidth);
    REQUIRE(like.link(DeviceId(8), DeviceId(0)));
    CHECK(like.link(DeviceId(8), DeviceId(0))->bandwidth ==
          machine.link(DeviceId(7), DeviceId(0))->bandwidth);
    CHECK(like.link(DeviceId(7), DeviceId(8)));
    CHECK_THAT(user_error([&] { with_devices(machine, "sim:h100[3]"); }),
               Contains("sim:h100[3] is there already"));
    CHECK_THAT(user_error([&] { with_devices(machine, "cuda[0]"); }),
               Contains("cuda[0]: the plan has no device of that kind"));
    CHECK_THAT(user_error([&] { without_devices(machine, "sim:h100[0-7]"); }),
               Contains("no device is left"));
    CHECK_THAT(user_error([&] { without_devices(machine, "sim:h100[9]"); }),
               Contains("sim:h100[9]: no device of the plan; it has sim:h100[0-7]"));
    CHECK_THAT(user_error([&] { with_links(machine, "xgmi", 2); }),
               Contains("xgmi: no link of the machine is of that kind; it has nvlink"));
    CHECK(with_links(machine, "nvlink", 2).links[0].bandwidth == 2 * machine.links[0].bandwidth);
}

TEST_CASE("a saved plan of replicas is asked again where its devices are the catalogue's",
          "[planner]") {
    const Case asked = case_on("sim:h100[0-3]", {.batch = 64},
                               {.objective = Objective::kThroughput, .replicas = 2});
    const Plan plan = plan_of(asked);
    REQUIRE(plan.num_replicas() == 2);
    const Case again = case_of(plan);
    CHECK(again.machine.devices.size() == 4);
    CHECK(plan_of(again).prediction.objective_ns == plan.prediction.objective_ns);
    CHECK(figures_of(plan).devices == 4);
    CHECK(limits(plan).now.replicas == 2);
    Plan real = plan;
    for (DeviceInfo& d : real.machine.devices) d.memory_bandwidth += 1;
    CHECK_THAT(user_error([&] { case_of(real); }),
               Contains("the plan has 2 replicas, and not what links them"));
}

TEST_CASE("work at once is done once each, and the first failure leaves it", "[planner]") {
    std::vector<std::atomic<int>> done(100);
    at_once(done.size(), [&](size_t i) { ++done[i]; });
    CHECK(std::ranges::all_of(done, [](const std::atomic<int>& n) { return n == 1; }));
    at_once(0, [&](size_t) { FAIL("there is none"); });
    CHECK(user_error([&] {
              at_once(done.size(), [&](size_t i) {
                  ++done[i];
                  if (i % 7 == 3) throw UserError("work {}", i);
              });
          }) == "work 3");
    CHECK(std::ranges::all_of(done, [](const std::atomic<int>& n) { return n == 2; }));
}

TEST_CASE("limits are the room, and those of plans with one thing more", "[planner]") {
    const Plan plan = plan_of(case_on("sim:rtx4090[0-1]", {.batch = 2}));
    const LimitsAnswer a = limits(plan);
    CHECK(a.now.room.max_sequences == room_of(plan).max_sequences);
    REQUIRE(a.further.size() == 4);
    CHECK(a.further[0].change == "sim:rtx4090[2] more");
    REQUIRE(a.further[0].then);
    CHECK(a.further[0].then->room.max_sequences ==
          room_of(plan_of(case_on("sim:rtx4090[0-2]", {.batch = 2}))).max_sequences);
    CHECK(a.further[1].change == "int8 weights");
    CHECK(a.further[1].then->room.max_sequences > a.now.room.max_sequences);
    REQUIRE(a.faster.size() == 1);
    CHECK(a.faster[0].alike == 2);
    // Alike devices are full together; of two models that were cut by layers one is first.
    CHECK(a.full == std::vector<std::string>{"sim:rtx4090[0]", "sim:rtx4090[1]"});
    CHECK_THAT(a.answer, Contains("replace sim:rtx4090[0-1]: they are full together"));
    const LimitsAnswer mixed = limits(
        plan_of(case_on("sim:h100[0],sim:rtx4090[0]", {}, {.pipeline_stages = 2}, "llama-3.2-1b")));
    CHECK(mixed.full == std::vector{mixed.now.sequences_bound});
    CHECK_THAT(a.answer, Contains(fmt::format("grow from 2 to {} at", a.now.room.max_sequences)));
    // Narrower weights may take fewer devices, so that a smaller batch than before is no surprise.
    const LimitsAnswer fewer =
        limits(plan_of(case_on("sim:h100[0-255]", {}, {}, "llama-3.1-405b")));
    const auto& int4 = *std::ranges::find(fewer.further, "int4 weights", &Further::change);
    REQUIRE(int4.then);
    CHECK(int4.then->devices < fewer.now.devices);
    CHECK_THAT(fewer.answer,
               Contains(fmt::format("int4 weights, on {} devices instead of {}: a batch",
                                    int4.then->devices, fewer.now.devices)));
    const LimitsAnswer hosts = limits(plan_of(case_on("host[0-1]", {}, {}, "stories-260k")));
    CHECK_THAT(hosts.no_device, Contains("shares this host's memory"));
    const Graph tensors = tensor_layer().graph;
    CHECK_THAT(limits(make_plan(tensors, machine_of("host[0]"), {}, {})).answer,
               Contains("keeps no keys and values"));
}

TEST_CASE("a sweep plans each combination, and says of a row that does not fit so", "[planner]") {
    const Case base = case_on("sim:rtx4090[0-1]");
    const Sweep all = sweep(base, {parse_axis("devices=1,2,3"), parse_axis("batch=1,1k")});
    REQUIRE(all.rows.size() == 6);
    CHECK(all.rows[5].values == std::vector<std::string>{"3", "1k"});
    REQUIRE(all.rows[2].figures);
    CHECK(all.rows[2].figures->objective_ns ==
          plan_of(case_on("sim:rtx4090[0-1]")).prediction.objective_ns);
    CHECK(all.rows[4].figures->given == 3);
    CHECK_FALSE(all.rows[1].figures);
    CHECK(all.rows[1].lacks_memory);
    const Sweep far = sweep(base, {parse_axis("context=4k,16k")});
    CHECK_THAT(far.rows[1].refusal, Contains("positions end at 8192"));
    CHECK_THAT(user_error([] { parse_axis("speed=1"); }),
               Contains("write AXIS=VALUE,VALUE,...") && Contains("kv-dtype"));
    CHECK_THAT(user_error([] { parse_axis("batch=1,none"); }),
               Contains("'none' is no whole number of 1 or more, such as 64 or 32k"));
    CHECK_THAT(user_error([] { parse_axis("dtype=f12"); }), Contains("'f12' is no dtype"));
    const SweepAxis batch = parse_axis("batch=1,2");
    CHECK_THAT(user_error([&] { sweep(base, {batch, batch}); }), Contains("batch is swept twice"));
    SweepAxis long_one{"batch", std::vector<std::string>(4097, "1")};
    CHECK_THAT(user_error([&] { sweep(base, {long_one}); }), Contains("more than 4096 rows"));
    CHECK_THAT(user_error([] {
                   sweep(case_on("host[0]", {}, {}, "stories-260k"), {parse_axis("devices=2")});
               }),
               Contains("devices=2: there are 1; name as many in $devices"));
}

TEST_CASE("what else there was are the shapes that people ask about, forced or not", "[planner]") {
    for (const int tp : {0, 8, 2}) {
        INFO("tp " << tp);
        const Plan plan = plan_of(case_on("sim:h100[0-7]", {}, {.tensor_parallel = tp}));
        std::set<std::string> shapes{shape_of(plan)};
        for (const RunnerUp& r : plan.why.runners_up) {
            const std::string shape = r.shape.substr(0, r.shape.find(" ("));
            CHECK(shapes.insert(shape).second);
            CHECK((r.objective_ns > 0 || r.why_not == "does not fit in memory"));
        }
        for (const char* shape : {"tp 8 x pp 1", "tp 4 x pp 2", "tp 2 x pp 4", "tp 1 x pp 8"})
            CHECK(shapes.contains(shape));
    }
}

}  // namespace cleave::test
