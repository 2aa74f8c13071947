// SPDX-License-Identifier: Apache-2.0
// Pins: what they put where, that no shape or device order hides a plan that meets them, and what
// is said of pins that contradict each other.
#include <random>
#include <set>

#include "models/llama_graph.h"
#include "models/shapes.h"
#include "planner/machine/build_machine.h"
#include "planner/planner.h"
#include "planner/verify/verify.h"
#include "planner/view/plan_text.h"
#include "tests/planner/support/machines.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::planner;
using Catch::Matchers::Contains;

namespace {

using Pins = std::vector<Pin>;

// Five layers.
const Graph& small_graph() {
    static const Graph kGraph =
        models::build_llama_graph(*models::find_shape("stories-260k"), DType::kF32);
    return kGraph;
}

Plan pinned_plan(const std::string& devices, Pins pins, int tp = 0, int pp = 0,
                 const Graph& graph = small_graph()) {
    Workload workload;
    workload.context = 128;
    workload.prompt_tokens = 32;
    PlanOptions options;
    options.tensor_parallel = tp;
    options.pipeline_stages = pp;
    options.pins = std::move(pins);
    return make_plan(graph, test::machine_of(devices), workload, options);
}

std::string refusal(const std::string& devices, Pins pins, int tp = 0, int pp = 0) {
    return test::user_error([&] { pinned_plan(devices, std::move(pins), tp, pp); });
}

// Names of the devices of the stage that has the operator.
std::set<std::string> devices_of(const Plan& plan, const std::string& op) {
    std::set<std::string> devices;
    for (const Stage& s : plan.stages)
        for (int32_t i = s.first_op.value; i <= s.last_op.value; ++i)
            if (plan.graph.ops[i].name == op)
                for (DeviceId d : s.devices) devices.insert(plan.machine.device(d).name);
    return devices;
}

// Devices whose launches compute operators of the layer.
std::set<std::string> devices_at_work(const Plan& plan, int layer) {
    std::set<std::string> devices;
    for (const Step& step : plan.decode.steps)
        if (const Compute* c = step.compute(); c && step.layer == layer)
            devices.insert(plan.machine.device(c->device).name);
    return devices;
}

}  // namespace

TEST_CASE("pinned layers are computed on their device, whatever the order of the devices",
          "[planner]") {
    for (bool swapped : {false, true}) {
        std::string first = swapped ? "host[1]" : "host[0]",
                    second = swapped ? "host[0]" : "host[1]";
        Plan plan = pinned_plan("host[0-1]", {{"layers.0-1", first}, {"layers.2-4", second}}, 1);
        for (int layer = 0; layer < 5; ++layer)
            CHECK(devices_at_work(plan, layer) ==
                  std::set<std::string>{layer < 2 ? first : second});
    }
}

TEST_CASE("a pin binds where the planner would choose otherwise", "[planner]") {
    for (const char* device : {"sim:h100[0]", "sim:h100[1]", "sim:h100[2]"}) {
        CHECK(devices_of(pinned_plan("sim:h100[0-2]", {{"embedding", device}}, 1, 3),
                         "embedding") == std::set<std::string>{device});
        CHECK(devices_of(pinned_plan("sim:h100[0-2]", {{"lm_head", device}}, 1, 3), "lm_head") ==
              std::set<std::string>{device});
        CHECK(devices_of(pinned_plan("sim:h100[0-2]", {{"layers.3", device}}), "layers.3.o_proj")
                  .count(device) == 1);
    }
    Plan plan = pinned_plan("host[0-1]", {{"lm_head", "host"}}, 1);
    CHECK(devices_of(plan, "lm_head") == std::set<std::string>{"host[0]"});
    CHECK_THAT(plan_to_text(plan), Contains("lm_head=host[0]"));  // by its canonical name
}

TEST_CASE("with tensor parallelism the stage of a pinned layer has its device", "[planner]") {
    Plan plan = pinned_plan("sim:h100[0-3]",
                            {{"layers.0", "sim:h100[3]"}, {"layers.4", "sim:h100[1]"}}, 2, 2);
    CHECK(devices_of(plan, "layers.0.o_proj").count("sim:h100[3]") == 1);
    CHECK(devices_of(plan, "layers.4.o_proj").count("sim:h100[1]") == 1);
    CHECK(devices_of(plan, "layers.4.o_proj").count("sim:h100[3]") == 0);
    CHECK(find_violations(plan).empty());
}

TEST_CASE("pins in pipeline order on any devices and any shape with room for them are met",
          "[planner]") {
    std::mt19937 random(5);
    auto pick = [&](int low, int high) {
        return std::uniform_int_distribution<int>(low, high)(random);
    };
    for (int i = 0; i < 60; ++i) {
        int devices = pick(1, 6);
        std::vector<int> order(devices);
        for (int d = 0; d < devices; ++d) order[d] = d;
        std::shuffle(order.begin(), order.end(), random);
        Pins pins;
        int layer = pick(0, 2);
        for (int k = 0; k < std::min(devices, 3) && layer < 5; ++k) {
            int last = std::min(4, layer + pick(0, 1));
            std::string device = fmt::format("sim:a40[{}]", order[k]);
            pins.push_back({fmt::format("layers.{}-{}", layer, last), device});
            layer = last + pick(1, 2);
        }
        int tp = 0, pp = 0;
        if (i % 3 == 1) pp = static_cast<int>(pins.size());
        if (i % 3 == 2) tp = 1, pp = devices;
        INFO("case " << i << ": " << devices << " devices, " << pins.size() << " pins, pp " << pp);
        Plan plan = pinned_plan(fmt::format("sim:a40[0-{}]", devices - 1), pins, tp, pp);
        for (const Pin& pin : pins)
            CHECK(devices_of(plan, pin.what.substr(0, 8) + ".o_proj").count(pin.device) == 1);
    }
}

TEST_CASE("a plan that does not keep to its pins is refused", "[planner]") {
    Plan plan = pinned_plan("host[0-1]", {{"embedding", "host[0]"}, {"lm_head", "host[1]"}}, 1);
    plan.options.pins[0].device = "host[1]";
    std::vector<Violation> violations = find_violations(plan);
    REQUIRE(violations.size() == 1);
    CHECK(violations[0].rule == "pin");
}

TEST_CASE("pins of what is not there are refused by name", "[planner]") {
    CHECK_THAT(refusal("host[0-1]", {{"layers.0-9", "host[0]"}}),
               Contains("$pins 'layers.0-9=host[0]'") && Contains("no layer 9") &&
                   Contains("layers 0 to 4"));
    CHECK_THAT(refusal("host[0-1]", {{"layers.3-1", "host[0]"}}), Contains("write layers.1-3"));
    CHECK_THAT(refusal("host[0-1]", {{"head", "host[0]"}}),
               Contains("'head' is nothing that can be pinned") && Contains("lm_head"));
    CHECK_THAT(refusal("host[0-1]", {{"layers.x", "host[0]"}}), Contains("'layers.x'"));
    CHECK_THAT(refusal("host[0-1]", {{"embedding", "host[2]"}}),
               Contains("host[2] is not declared; the devices are host[0], host[1]"));
    CHECK_THAT(refusal("host[0-1]", {{"embedding", "host[0-1]"}}), Contains("pin to one"));
}

TEST_CASE("two devices for one layer are refused with its readers and what each way out costs",
          "[planner]") {
    std::string text = refusal("host[0-1]", {{"layers.0-2", "host[0]"}, {"layers.2-4", "host[1]"}});
    CHECK_THAT(text, Contains("layers.2 is pinned to host[0] and to host[1]"));
    CHECK_THAT(text, Contains("read by layers.2.input_norm on host[0], layers.2.input_norm on "
                              "host[1]"));
    // 64 features of f32 cross; the two norms have as many each.
    CHECK_THAT(text, Contains("$pins 'layers.3-4=host[1]' instead of $pins 'layers.2-4=host[1]'"));
    CHECK_THAT(text, Contains("transfer: 256 B per token from host[0] to host[1]"));
    CHECK_THAT(text, Contains("$pins 'layers.0-1=host[0]' instead of"));
    CHECK_THAT(text, Contains("replicate: 512 B of norms and biases"));
    // Each of the two ways out is one.
    REQUIRE_NOTHROW(
        pinned_plan("host[0-1]", {{"layers.0-2", "host[0]"}, {"layers.3-4", "host[1]"}}));
    REQUIRE_NOTHROW(
        pinned_plan("host[0-1]", {{"layers.0-1", "host[0]"}, {"layers.2-4", "host[1]"}}));
}

TEST_CASE("pins may return to a device, which then has several stages", "[planner]") {
    const Pins pins{{"embedding", "host[0]"}, {"layers.0-4", "host[1]"}, {"lm_head", "host[0]"}};
    for (auto [devices, tp] : {std::pair{"host[0-1]", 0}, {"host[0-1]", 1}, {"host[0-2]", 0}}) {
        INFO(devices << ", tp " << tp);
        Plan plan = pinned_plan(devices, pins, tp);
        CHECK(plan.stages.size() >= 3);
        CHECK(devices_of(plan, "embedding").count("host[0]") == 1);
        CHECK(devices_of(plan, "lm_head").count("host[0]") == 1);
        for (int layer = 0; layer < 5; ++layer)
            CHECK(devices_of(plan, fmt::format("layers.{}.o_proj", layer)).count("host[1]") == 1);
        CHECK(find_violations(plan).empty());
    }
    // Tied: the table that the embedding and lm_head read is there once.
    Plan plan = pinned_plan("host[0-1]", pins, 1);
    size_t tables = 0;
    for (const WeightShard& s : plan.weights)
        tables += plan.graph.weight(s.weight).shape.size() == 2 &&
                  plan.machine.device(s.device).name == "host[0]";
    CHECK(tables == 1);
    // Layers in turn, there and back again, twice.
    plan = pinned_plan("sim:a40[0-1]", {{"layers.0", "sim:a40[0]"},
                                        {"layers.1", "sim:a40[1]"},
                                        {"layers.2", "sim:a40[0]"},
                                        {"layers.3", "sim:a40[1]"},
                                        {"layers.4", "sim:a40[0]"}});
    for (int layer = 0; layer < 5; ++layer)
        CHECK(devices_at_work(plan, layer) ==
              std::set<std::string>{fmt::format("sim:a40[{}]", layer % 2)});
    CHECK_THAT(refusal("host[0-1]", pins, 0, 2),
               Contains("3 stages at least, and the shape has 2"));
}

TEST_CASE("any operator can be pinned by its name, and its unit goes with it", "[planner]") {
    Plan plan = pinned_plan(
        "host[0-1]", {{"layers.2.down_proj", "host[0]"}, {"layers.3.attention", "host[1]"}}, 1);
    CHECK(devices_of(plan, "layers.2.down_proj") == std::set<std::string>{"host[0]"});
    CHECK(devices_of(plan, "layers.3.o_proj") == std::set<std::string>{"host[1]"});
}

TEST_CASE("a shape with too few or too many stages for the pins is refused", "[planner]") {
    CHECK_THAT(refusal("host[0-1]", {{"embedding", "host[0]"}, {"lm_head", "host[1]"}}, 2),
               Contains("the pins name 2 devices") && Contains("the shape has 1 stage"));
    CHECK_THAT(refusal("host[0-3]", {{"layers.0-4", "host[0]"}}, 1),
               Contains("at most 3 stages") && Contains("give $pipeline_stages 3 or less"));
}
